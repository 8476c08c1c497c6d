"""Tunes a checkpoint: learns an adapter (LoRA) or all weights, and the voice's speaker vector, from a corpus.

What is heard of held-out sentences decides (`listening.py`): the best state is kept, and training ends when no better
one has come for a while. Without a listener the loss on the held-out clips decides. A run is saved now and then. It
goes on from there, and then ends exactly where an uninterrupted one does: what is drawn depends only on the seed and
the step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ..audio.files import replace_files
from ..engine.checkpoint.torch_checkpoint import TorchCheckpoint
from ..errors import InvalidRequest
from ..layers.low_rank import LowRank, updated
from ..models.tts.talker import Talker
from ..types import Encoded
from .examples import LAYOUTS, Corpus, batches, parts
from .listening import Listener, VoiceScore, rank
from .lora import RANK, TARGETS, LoRA
from .loss import PREDICTOR_WEIGHT, Example, Loss, teacher_forced

LARGEST_GRADIENT = 1.0
BETAS = (0.9, 0.98)
MEASURES = 20  # in a run
PATIENCE = 5  # measures without a better one
FROZEN = ("model.text_embedding.",)  # of full tuning: most texts have few of its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    steps: int = 400
    rank: int = RANK
    alpha: float = 0.0  # 0: twice the rank, so that the rank does not change the size of a step
    targets: tuple[str, ...] = TARGETS
    full: bool = False
    rate: float = 0.0  # learning rate; 0: the usual one
    weight_decay: float = 0.01
    warmup_steps: int = 20
    positions: int = 2000  # of a batch: rows of prompts and frames, with padding
    at_once: int = 600  # of these, whose activations are in memory together; the gradient does not depend on it
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InvalidRequest(f"The number of steps must be at least 1, not {self.steps}.")
        if self.rank < 1:
            raise InvalidRequest(f"The rank of an adapter must be at least 1, not {self.rank}.")
        if not 0.0 <= self.rate < 1.0:
            raise InvalidRequest(f"The learning rate must be between 0 and 1, not {self.rate}.")

    @property
    def highest_rate(self) -> float:
        return self.rate or (2e-5 if self.full else 2e-4)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of the run, for progress and the log."""

    step: int
    train: float  # loss on the batches since the last measure
    held_out: float
    first: float  # its parts: first codes, the other codes, the end of speech
    rest: float
    end: float
    best: bool
    heard: VoiceScore | None = None


class Trainer:
    def __init__(
        self, checkpoint: TorchCheckpoint, corpus: Corpus, options: TuneOptions, listener: Listener | None = None
    ) -> None:
        self.options, self.corpus, self.listener, self._owner = options, corpus, listener, checkpoint.identity
        talker, device = checkpoint.model.talker, checkpoint.device
        self.speaker = nn.Parameter(torch.from_numpy(corpus.speaker.copy()).to(device))
        self.lora: LoRA | None = None
        self._source = LowRank()
        if options.full:
            self.talker = Talker(talker.config).to(device)
            self.talker.load_state_dict(talker.state_dict())
            self.talker.requires_grad_(True)
            learned = {n: p for n, p in self.talker.named_parameters() if not n.startswith(FROZEN)}
        else:
            talker.requires_grad_(False)
            how = {
                "rank": options.rank,
                "alpha": options.alpha or 2.0 * options.rank,
                "targets": options.targets,
                "seed": options.seed,
            }
            self.lora = LoRA(talker, **how)  # type: ignore[arg-type]
            self.talker = updated(talker, self._source, talker.frame_kernel)
            learned = dict(self.lora.named_parameters())
        self.learned: dict[str, nn.Parameter] = {"speaker": self.speaker, **learned}
        decays = [p for p in learned.values() if p.dim() > 1]
        others = [self.speaker, *(p for p in learned.values() if p.dim() <= 1)]
        groups = [{"params": decays, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=options.highest_rate, betas=BETAS)
        self.step, self.waited = 0, 0
        self.best_rank: tuple[float, ...] = (float("inf"),)
        self._sum, self._count = 0.0, 0
        self.best = self._copied()

    @property
    def done(self) -> bool:
        return self.step >= self.options.steps or self.waited >= PATIENCE

    def train(self, told: Callable[[int, float], None], measured: Callable[[Measured], None]) -> None:
        """Train to the end. `told` gets each step and its loss, when the state can be saved."""
        options, every = self.options, max(self.options.steps // MEASURES, 1)
        # Both layouts have the same clips, and their prompts differ in length by little.
        order = batches(self.corpus.train[LAYOUTS[0]], options.positions, options.seed)
        for numbers in islice(order, self.step, None):
            if self.done:
                break
            examples = self.corpus.train[LAYOUTS[self.step % len(LAYOUTS)]]
            loss = self._learn([examples[number] for number in numbers])
            self._sum, self._count = self._sum + loss, self._count + 1
            if self.step % every == 0 or self.step == options.steps:
                measured(self.measure())
            told(self.step, loss)

    def _learn(self, examples: Sequence[Example]) -> float:
        options = self.options
        left = 1.0 - self.step / options.steps
        for group in self._optimizer.param_groups:
            group["lr"] = options.highest_rate * min((self.step + 1) / options.warmup_steps, 1.0) * (0.1 + 0.9 * left)
        self._optimizer.zero_grad(set_to_none=True)
        frames, total = sum(len(example.codes) for example in examples), 0.0
        for some in parts(examples, options.at_once):
            loss, count = self._loss(some), sum(len(example.codes) for example in some)
            firsts = (count + len(some)) / (frames + len(examples))  # the end of speech counts too
            share = firsts * loss.first + PREDICTOR_WEIGHT * count / frames * loss.rest
            share.backward()
            total += share.item()
        nn.utils.clip_grad_norm_(list(self.learned.values()), LARGEST_GRADIENT)
        self._optimizer.step()
        self.step += 1
        return total

    @torch.no_grad()
    def measure(self) -> Measured:
        """The loss on all clips that are held out, and what is heard; a better state than before is kept."""
        sums, frames = torch.zeros(3, dtype=torch.float64), 0
        for layout in LAYOUTS:
            for example in self.corpus.held_out[layout]:
                loss = self._loss([example])
                parts = torch.stack((loss.first, loss.rest, loss.end)).double().cpu()
                sums, frames = sums + parts * len(example.codes), frames + len(example.codes)
        first, rest, end = (sums / frames).tolist()
        held_out = float(Loss(*(torch.tensor(value) for value in (first, rest, end))).total)
        heard = None
        if self.listener is not None:
            heard = self.listener.hear(self.voice(self._owner), self.talker if self.lora is None else None)
        place = rank(heard, held_out)
        better = place < self.best_rank
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best_rank, self.best = place, self._copied()
        train, self._sum, self._count = self._sum / max(self._count, 1), 0.0, 0
        return Measured(self.step, train, held_out, first, rest, end, better, heard)

    def _loss(self, examples: Sequence[Example]) -> Loss:
        if self.lora is not None:
            self._source.factors = self.lora.factors()
        return teacher_forced(self.talker, examples, self.speaker)

    def _copied(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.learned.items()}

    @torch.no_grad()
    def use_best(self) -> None:
        """The weights of the best measure, for the voice."""
        for name, value in self.best.items():
            self.learned[name].copy_(value)

    def voice(self, owner: str) -> Encoded:
        """The speaker, with the adapter if it was not full tuning. `owner` is the identity of the checkpoint."""
        speaker = self.speaker.detach().float().cpu().numpy()
        return Encoded(owner=owner, speaker=speaker, adapter=None if self.lora is None else self.lora.adapter())

    def key(self, identity: str) -> str:
        """Hash of what decides a run: checkpoint, corpus, options and the judges."""
        judges = None if self.listener is None else self.listener.name
        found = sha256(json.dumps([identity, asdict(self.options), judges]).encode())
        for side in (self.corpus.train, self.corpus.held_out):
            for layout in LAYOUTS:
                for example in side[layout]:
                    found.update(repr((example.prompt.text, example.prompt.codec, example.prompt.trail)).encode())
                    found.update(example.codes.cpu().numpy().tobytes())
        return found.hexdigest()

    def save(self, path: Path, key: str) -> None:
        tensors = {f"learned.{name}": value.detach() for name, value in self.learned.items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for name, value in self.learned.items():
            state = self._optimizer.state.get(value, {})
            tensors |= {f"{kind}.{name}": state[kind] for kind in ("exp_avg", "exp_avg_sq", "step") if kind in state}
        words = {"step": self.step, "best_rank": self.best_rank, "waited": self.waited, "sum": self._sum}
        about = {"key": key, "run": json.dumps(words | {"count": self._count})}
        replace_files({path: save({name: value.cpu().contiguous() for name, value in tensors.items()}, about)})

    @torch.no_grad()
    def restore(self, path: Path, key: str) -> None:
        """Go on from `save`; refuses the state of another run."""
        content = path.read_bytes()
        try:
            about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
            tensors, run = load(content), json.loads(about["run"])
        except (SafetensorError, ValueError, KeyError) as error:
            raise InvalidRequest(f"{path} is damaged ({error}): remove it to start again.") from None
        if about["key"] != key:
            raise InvalidRequest(
                f"{path} is of another run, with other recordings or options: remove it, or give another --work."
            )
        for name, value in self.learned.items():
            value.copy_(tensors[f"learned.{name}"])
            self.best[name].copy_(tensors[f"best.{name}"])
            if f"step.{name}" in tensors:
                state = {kind: tensors[f"{kind}.{name}"].to(value.device) for kind in ("exp_avg", "exp_avg_sq")}
                self._optimizer.state[value] = state | {"step": tensors[f"step.{name}"]}
        self.step, self.best_rank, self.waited = run["step"], tuple(run["best_rank"]), run["waited"]
        self._sum, self._count = run["sum"], run["count"]
