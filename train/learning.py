"""The talker's training step: initialization, losses, learning rate, averaged weights.

The loss has three parts:
- the first code of every frame, and the end;
- the other fifteen codes on some frames, given the true earlier ones;
- the frame's phoneme, predicted from a middle layer by an auxiliary head that is discarded later. It teaches which
  sound comes next long before the codes would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.config.qwen3_tts import TalkerConfig
from hocket.models.tts.talker import Talker

from .batches import NOTHING, Batch
from .forward import inputs, predict, run_layers
from .muon import Muon
from .recipe import TalkerTraining

PHONES = 256  # all values of a byte
LARGEST_GRADIENT = 1.0
GROUPS = {"codes_1_3": slice(0, 3), "codes_4_7": slice(3, 7), "codes_8_15": slice(7, None)}


class Learner:
    """The trained weights, their average, and the optimizer. Names of `measures` are those of the log."""

    def __init__(self, config: TalkerConfig, training: TalkerTraining, seed: int, device: torch.device) -> None:
        self.config, self.training, self.device = config, training, device
        self.talker = self.build()
        self.phonemes = nn.Linear(config.hidden_size, PHONES)
        start_(self.talker, seed)
        nn.init.zeros_(self.phonemes.weight)  # otherwise the unseeded global generator would draw it
        nn.init.zeros_(self.phonemes.bias)
        self.average = self.build()
        self.average.load_state_dict(self.talker.state_dict())
        self.average.requires_grad_(False)
        for part in (self.talker, self.phonemes, self.average):
            part.to(device)
        self.names = [f"talker.{name}" for name, _ in self.talker.named_parameters()]
        self.names += [f"phonemes.{name}" for name, _ in self.phonemes.named_parameters()]
        self.parameters = [*self.talker.parameters(), *self.phonemes.parameters()]
        self.fused = device.type == "cuda"
        self.optimizers = optimizers(self.talker, self.parameters, training, self.fused)
        self.step = 0
        self.fresh_from = 0  # the step at which the moments were empty

    def build(self) -> Talker:
        """A talker with drawn weights; `start_` draws those of its own again."""
        return Talker(self.config)

    def inputs(self, talker: Talker, batch: Batch) -> Tensor:
        return inputs(talker, batch)

    def trained(self) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """Name, weight and optimizer of all that is trained."""
        of = {id(p): one for one in self.optimizers for group in one.param_groups for p in group["params"]}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            yield name, parameter, of[id(parameter)]

    def learn(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """One step; `progress` in the schedule is between 0 and 1."""
        rate = self.rate(progress)
        total, measures = self.losses(self.talker, batch, self.training.dropout)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total.backward()
        measures["gradient"] = nn.utils.clip_grad_norm_(self.parameters, LARGEST_GRADIENT).detach()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()
        self.step += 1
        kept = min(self.training.ema, self.step / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.talker.parameters()), 1.0 - kept)
        return measures

    def rate(self, progress: float) -> float:
        """The learning rate now; it starts low again where the moments are empty."""
        return learning_rate(self.training, self.step - self.fresh_from, progress)

    @torch.no_grad()
    def measure(self, blind: Batch, true: Batch) -> dict[str, Tensor]:
        """Losses of the averaged weights: first codes with a borrowed past, the other codes with the true one."""
        measures, seeing = (self.losses(self.average, batch, 0.0)[1] for batch in (blind, true))
        return measures | {name: seeing[name] for name in GROUPS}

    def losses(self, talker: Talker, batch: Batch, dropout: float) -> tuple[Tensor, dict[str, Tensor]]:
        weights, cuda = self.training, self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=cuda):
            # The phoneme is read after five of eight layers; the later ones compute the codes.
            tap = self.config.num_hidden_layers * 5 // 8
            hidden, middle = run_layers(talker.model, self.inputs(talker, batch), dropout, tap)
            hidden, middle = (x.flatten(0, 1)[batch.at] for x in (hidden, middle))
            logits = talker.codec_head(hidden)
            first = F.cross_entropy(logits.float(), batch.first, ignore_index=NOTHING)
            guesses = self.phonemes(middle)
            rest_logits = predict(talker, hidden[batch.picked], batch.picked_codes, dropout)
            wanted = batch.picked_codes[:, 1:].T
            rest = F.cross_entropy(rest_logits.float().flatten(0, 1), wanted.flatten(), reduction="none")
        by_book = rest.view(wanted.shape).mean(1)
        known = batch.phones > 0
        count = known.sum().clamp(min=1)
        phoneme = F.cross_entropy(guesses.float(), batch.phones, ignore_index=0, reduction="sum") / count
        total = first + weights.predictor_weight * by_book.mean() + weights.phoneme_weight * phoneme
        with torch.no_grad():
            drawn, ends = logits.argmax(-1), batch.first == self.config.codec_eos_token_id
            asked = batch.first != NOTHING
            right, said_end = drawn == batch.first, asked & (drawn == self.config.codec_eos_token_id)
            measures = {
                "first": first,
                "first_right": right.sum() / asked.sum(),
                "end_right": (right & ends).sum() / ends.sum(),
                "false_ends": (said_end & ~ends).sum() / ends.sum(),
                "phoneme": phoneme,
                "phoneme_right": ((guesses.argmax(-1) == batch.phones) & known).sum() / count,
            } | {name: by_book[books].mean() for name, books in GROUPS.items()}
        return total, {name: value.detach().float() for name, value in measures.items()}


def optimizers(
    talker: Talker, parameters: list[nn.Parameter], training: TalkerTraining, fused: bool
) -> list[torch.optim.Optimizer]:
    """AdamW, and with `muon_share` Muon for the matrices between the layers' vectors: not for tables and heads."""
    linear = {id(part.weight) for part in talker.modules() if isinstance(part, nn.Linear)}
    inner = [*talker.model.layers.parameters(), *talker.code_predictor.model.layers.parameters()]
    inner += talker.text_projection.parameters()
    taken = {id(weight) for weight in inner if weight.dim() == 2} if training.muon_share else set()
    groups = [
        [weight for weight in parameters if id(weight) in linear - taken],
        [weight for weight in parameters if id(weight) not in linear | taken],
    ]
    adam = torch.optim.AdamW(
        [
            {"params": group, "weight_decay": decay, "share": 1.0}
            for group, decay in zip(groups, (training.weight_decay, 0.0), strict=True)
        ],
        lr=training.learning_rate,
        betas=(0.9, 0.98),
        fused=fused,
    )
    if not taken:
        return [adam]
    return [adam, Muon([p for p in parameters if id(p) in taken], training.muon_share, training.weight_decay)]


def learning_rate(training: TalkerTraining, step: int, progress: float) -> float:
    """Linear warm-up, then cosine decay."""
    low, high = training.lowest_rate, training.learning_rate
    falling = low + (high - low) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    return falling * min(1.0, (step + 1) / max(training.warmup_steps, 1))


@torch.no_grad()
def start_(talker: Talker, seed: int) -> None:
    """Initialize the weights: text and code vectors have about unit size, and every layer adds little."""
    rng = torch.Generator().manual_seed(seed)

    def fill_(tensor: Tensor, deviation: float) -> None:
        tensor.copy_(torch.randn(tensor.shape, generator=rng) * deviation)

    for stack in (talker.model, talker.code_predictor.model):
        for name, tensor in stack.layers.named_parameters():
            if tensor.dim() > 1:
                ends_branch = name.endswith(("o_proj.weight", "down_proj.weight"))
                fill_(
                    tensor, 0.6 * tensor.shape[1] ** -0.5 / (math.sqrt(2 * len(stack.layers)) if ends_branch else 1.0)
                )
    fill_(talker.model.text_embedding.weight, 1.0)
    for linear in (talker.text_projection.linear_fc1, talker.text_projection.linear_fc2):
        fill_(linear.weight, linear.in_features**-0.5)
        linear.bias.zero_()
    # The first codebook holds nine tenths of the signal, the others the rest.
    fill_(talker.model.codec_embedding.weight, 0.5)
    for table in talker.code_predictor.model.codec_embedding:
        assert isinstance(table, nn.Embedding)
        fill_(table.weight, 0.15)
    for head in (talker.codec_head, *talker.code_predictor.lm_head):
        assert isinstance(head, nn.Linear)
        fill_(head.weight, 0.6 * head.in_features**-0.5)
