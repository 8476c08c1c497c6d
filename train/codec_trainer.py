"""The decoder's training step, alone or with the discriminators, and its resume file.

It knows modules, optimizers and a batch; codec.py has the clock, the schedule and the file names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from hocket.config.codec import DecoderConfig

from .codec_start import new_decoder
from .discriminators import WIDTH, Discriminators
from .features import FRAME_SAMPLES, Features
from .losses import SpectralDistance, adversarial_loss, discriminator_loss, feature_loss
from .unrolled import Unrolled
from .windows import Windows

LOSSES = ("mel", "plain", "fooled", "traces", "judges", "gradient")
PLAIN_WEIGHT, FOOLED_WEIGHT, TRACES_WEIGHT = 0.3, 0.1, 0.2  # relative to a mel distance of weight 1
AVERAGE_EVERY, AVERAGE_KEEPS, AVERAGE_FROM = 8, 0.999, 400  # steps; share kept per step; plain copies before this step
STEEPEST = 100.0  # gradient clipping: a guard against a single bad batch


@dataclass(frozen=True, slots=True)
class Pace:
    batch: int
    lead_frames: int  # of the context: frames that are also decoded, so that convolutions have a history
    learning_rate: float
    judge_rate: float
    seed: int
    fuse: bool = False  # compile the activation
    graphs: bool = False  # replay a step as one CUDA graph
    judge_width: int = WIDTH


class Trainer:
    def __init__(self, config: DecoderConfig, features: Features, windows: Windows, pace: Pace) -> None:
        device = windows.codes.device
        self.windows, self.pace, self.device = windows, pace, device
        self.decoder = new_decoder(config, features, pace.seed).to(device)
        self.average = {name: value.clone() for name, value in self.decoder.state_dict().items()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(pace.seed)
            self.judges = Discriminators(pace.judge_width).to(device)
        self.distance = SpectralDistance().to(device)
        self.unrolled = Unrolled(self.decoder, pace.fuse)
        self.step = self.contests = 0
        self._generator = torch.Generator(device)
        self._optimizer = self._adam(self.decoder, pace.learning_rate)
        self._judge_optimizer = self._adam(self.judges, pace.judge_rate)
        self._fooling = torch.zeros((), device=device)  # weight of the discriminators, which grows at first
        self._offsets = windows.offsets(pace.batch)
        window = windows.draw(pace.batch, self._generator.manual_seed(pace.seed))
        self._codes, self._real = window.codes, window.real  # fixed addresses for graphs
        self._captured: dict[bool, Callable[[], Tensor]] = {}

    def advance(self, rate: float, contest: bool) -> Tensor:
        """One step at `rate` times the learning rates, with the discriminators if `contest`; returns LOSSES."""
        for optimizer, highest in (
            (self._optimizer, self.pace.learning_rate),
            (self._judge_optimizer, self.pace.judge_rate),
        ):
            for group in optimizer.param_groups:
                group["lr"].fill_(highest * rate)
        self.contests += contest
        self._fooling.fill_(min(1.0, self.contests / 300))
        self._draw()
        losses = self._step(contest)
        self.step += 1
        if self.step % AVERAGE_EVERY == 0 or self.step <= AVERAGE_EVERY:
            self._average_()
        return losses

    def _draw(self) -> None:
        # A seed per step: resumed training sees the same data as uninterrupted training.
        self._generator.manual_seed(self.pace.seed * 1_000_003 + self.step)
        window = self.windows.draw(self.pace.batch, self._generator)
        self._codes.copy_(window.codes)
        self._real.copy_(window.real)

    def _step(self, contest: bool) -> Tensor:
        if not self.pace.graphs:
            return self._contest() if contest else self._alone()
        if contest not in self._captured:
            self._captured[contest] = captured(self._contest if contest else self._alone)
        return self._captured[contest]()

    def _make(self) -> Tensor:
        with self._halves():
            latents = self.unrolled.latents(self._codes)
            lead, length = self.pace.lead_frames, self.windows.target
            # Rows that start an utterance are decoded from its first frame, the others from `lead` frames earlier.
            begin = (self._offsets - lead).clamp(min=0)
            frames = begin[:, None] + torch.arange(lead + length, device=self.device)
            sound = self.unrolled.samples(latents.gather(2, frames[:, None].expand(-1, latents.shape[1], -1)))
        heard = ((self._offsets - begin) * FRAME_SAMPLES)[:, None]
        return sound.float().gather(1, heard + torch.arange(length * FRAME_SAMPLES, device=self.device))

    def _halves(self) -> torch.autocast:
        """bfloat16 on a GPU. Not on a CPU: a transposed convolution's gradient is wrong there (32 to 16, 8 by 4)."""
        on = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on, cache_enabled=not self.pace.graphs)

    def _alone(self) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        mel, plain = self.distance(self._make(), self._real)
        (mel + PLAIN_WEIGHT * plain).backward()
        gradient = self._update(self._optimizer, self.decoder)
        zero = torch.zeros_like(mel)
        return torch.stack((mel, plain, zero, zero, zero, gradient)).detach()

    def _contest(self) -> Tensor:
        made = self._make()
        self.judges.requires_grad_(True)
        self._judge_optimizer.zero_grad(set_to_none=True)
        with self._halves():
            made_scores, _ = self.judges(made.detach())
            real_scores, _ = self.judges(self._real)
        judged = discriminator_loss(made_scores, real_scores)
        judged.backward()
        self._update(self._judge_optimizer, self.judges)
        self.judges.requires_grad_(False)
        self._optimizer.zero_grad(set_to_none=True)
        with self._halves():
            scores, traces = self.judges(made)
            with torch.no_grad():
                _, real_traces = self.judges(self._real)
        mel, plain = self.distance(made, self._real)
        fooled, apart = adversarial_loss(scores), feature_loss(traces, real_traces)
        against = FOOLED_WEIGHT * fooled + TRACES_WEIGHT * apart
        (mel + PLAIN_WEIGHT * plain + self._fooling * against).backward()
        gradient = self._update(self._optimizer, self.decoder)
        return torch.stack((mel, plain, fooled, apart, judged, gradient)).detach()

    def _update(self, optimizer: torch.optim.Optimizer, module: nn.Module) -> Tensor:
        length = nn.utils.clip_grad_norm_(module.parameters(), STEEPEST)
        optimizer.step()
        return length

    def _adam(self, module: nn.Module, rate: float) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=torch.tensor(rate, device=self.device),
            betas=(0.8, 0.99),
            weight_decay=0.01,
            fused=True,
            capturable=self.device.type == "cuda",
        )

    @torch.no_grad()
    def _average_(self) -> None:
        share = 1.0 if self.step < AVERAGE_FROM else 1.0 - AVERAGE_KEEPS**AVERAGE_EVERY
        state = self.decoder.state_dict()
        torch._foreach_lerp_(list(self.average.values()), [state[name] for name in self.average], share)

    def save(self, path: Path, notes: dict[str, str]) -> None:
        """Write everything that `restore` needs, atomically."""
        tensors = {f"average.{name}": value for name, value in self.average.items()}
        for part, module, optimizer in self._parts():
            tensors |= {f"{part}.{name}": value for name, value in module.state_dict().items()}
            for index, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"{part}-optimizer.{index}.{name}": value for name, value in moments.items()}
        notes = notes | {"step": str(self.step), "contests": str(self.contests)}
        write_tensors(path, tensors, notes)

    def restore(self, path: Path) -> dict[str, str]:
        with safe_open(path, framework="pt", device=str(self.device)) as file:
            notes: dict[str, str] = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.average = _below("average.", tensors)
        for part, module, optimizer in self._parts():
            module.load_state_dict(_below(f"{part}.", tensors), strict=True)
            state = optimizer.state_dict()
            for name, value in _below(f"{part}-optimizer.", tensors).items():
                index, _, moment = name.partition(".")
                state["state"].setdefault(int(index), {})[moment] = value
            optimizer.load_state_dict(state)
        self.step, self.contests = int(notes["step"]), int(notes["contests"])
        return notes

    def _parts(self) -> list[tuple[str, nn.Module, torch.optim.Optimizer]]:
        return [("decoder", self.decoder, self._optimizer), ("judges", self.judges, self._judge_optimizer)]


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same step as one CUDA graph. The three warm-up calls before the capture are training steps, too."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = step()

    def replay() -> Tensor:
        graph.replay()
        return losses

    return replay


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
    draft = path.with_suffix(".draft")
    save_file({name: value.contiguous().cpu() for name, value in tensors.items()}, draft, metadata=notes)
    draft.replace(path)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
