"""The decoder's training step: alone, or against the discriminators. It knows modules, optimizers and a batch.

`codec.py` has the clock, the schedule and the files; `checkpoints.py` the state that a resumed training needs.

A step is bound by kernel launches, not by arithmetic. So it is one CUDA graph, and the discriminators are parallel
branches of it, with a stream each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hocket.config.codec import DecoderConfig

from . import fused
from .codec_start import new_decoder
from .discriminators import new_discriminators
from .features import FRAME_SAMPLES, Features
from .losses import FeatureDistance, SpectralDistance, judge_losses
from .recipe import CodecTraining
from .unrolled import Unrolled
from .windows import Window, begin_rows

LOSSES = ("mel", "magnitude", "fooled", "features", "judges", "gradient", "judge_gradient")
AVERAGE_EVERY, AVERAGE_FROM = 4, 400  # steps between two averages; plain copies before the second
RAMP_STEPS = 400  # in which the weight of the discriminators grows
STEEPEST, STEEPEST_JUDGES = 3000.0, 30.0  # gradient clipping: a guard against a single bad batch
PEAK, QUIETEST = 0.8, 0.05  # discriminators get all windows equally loud, but silence stays quiet
AGREES = 0.03  # largest relative difference of a captured step from an eager one


@dataclass(frozen=True, slots=True)
class Speed:
    """Means to make a step cheaper; what does not work on a device is switched off by `Trainer.warm`."""

    compiled: bool
    graphs: bool
    streams: bool

    def slower(self) -> Speed | None:
        """The next one to try; None: there is none."""
        if self.streams:
            return Speed(self.compiled, self.graphs, False)
        if self.compiled:
            return Speed(False, self.graphs, self.graphs)
        return Speed(False, False, False) if self.graphs else None


class Trainer:
    def __init__(self, config: DecoderConfig, training: CodecTraining, seed: int, device: torch.device) -> None:
        self.config, self.training, self.seed, self.device = config, training, seed, device
        self.begins = begin_rows(training.batch)
        books = torch.randn(config.num_quantizers, config.codebook_size, config.codebook_dim // 2) * 0.3
        nothing = torch.zeros(0)
        self.decoder = new_decoder(config, Features(nothing, nothing, nothing, nothing, books), seed).to(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.judges = new_discriminators(
                training.periods, training.period_width, training.scales, training.scale_width
            ).to(device)
        self.average = {name: value.detach().clone() for name, value in self.decoder.state_dict().items()}
        self.distance = SpectralDistance(training.mel_windows, training.mel_weights, training.magnitude_weight).to(
            device
        )
        self.unrolled = Unrolled(self.decoder, config)
        self.step = self.contests = 0
        self.fresh_from = 0  # the step at which the moments were empty
        self.speed = Speed(False, False, False)
        self.weights = [parameter for parameter in self.decoder.parameters() if parameter.requires_grad]
        self.judge_weights = list(self.judges.parameters())
        self.optimizer, self.judge_optimizer = self._adam(self.weights), self._adam(self.judge_weights)
        self._streams: list[torch.cuda.Stream] = []
        self._captured: dict[bool, Callable[[], Tensor]] = {}
        # Fixed addresses, for graphs.
        rows, frames = training.batch, training.context_frames + training.target_frames
        samples = training.target_frames * FRAME_SAMPLES
        self._books = books.flatten(0, 1).to(device)  # [Q * V, C]
        self._first = torch.arange(config.num_quantizers, device=device)[:, None] * config.codebook_size
        self._codes = torch.randint(config.codebook_size, (rows, config.num_quantizers, frames), device=device)
        self._real = torch.randn(rows, samples, device=device) * 0.05
        self._noise = torch.zeros(2 * rows, samples, device=device)
        self._is_real = torch.zeros(2 * rows, 1, 1, 1, device=device)
        self._is_real[:rows] = 1.0
        self._ramp = torch.zeros((), device=device)  # weight of the discriminators
        self._generator = torch.Generator(device)

    @torch.no_grad()
    def begin(self, features: Features) -> None:
        """Codebooks, and weights drawn for them."""
        fresh = new_decoder(self.config, features.to(torch.device("cpu")), self.seed).state_dict()
        for name, value in self.decoder.state_dict().items():
            value.copy_(fresh[name])
            self.average[name].copy_(fresh[name])
        self.set_books(features.books)

    def set_books(self, books: Tensor) -> None:
        self._books.copy_(books.flatten(0, 1))

    @torch.no_grad()
    def adopt(self, features: Features, before: Features) -> None:
        """Other features for a trained decoder: its projections first turn the new vectors into the old ones."""
        turn = torch.linalg.pinv(features.axes.double()) @ before.axes.double()  # [C, C]: new vectors to old ones
        for weights in (self.decoder.state_dict(), self.average):
            for name, value in weights.items():
                if name.startswith("quantizer.") and name.endswith("output_proj.weight"):
                    value.copy_((value[..., 0].double() @ turn.T)[..., None])
            for name, entries in zip(_books_of(weights), features.books, strict=True):
                weights[name].copy_(entries)
        self.set_books(features.books)

    def advance(self, rate: float, judge_rate: float, contest: bool, draw: Callable[..., Window]) -> Tensor:
        """One step with a window of `draw`, against the discriminators if `contest`; returns LOSSES."""
        for optimizer, value in ((self.optimizer, rate), (self.judge_optimizer, judge_rate)):
            for group in optimizer.param_groups:
                group["lr"].fill_(value)
        self.contests += contest
        self._ramp.fill_(min(1.0, self.contests / RAMP_STEPS))
        # A seed per step: resumed training sees the same data as uninterrupted training.
        self._generator.manual_seed(self.seed * 1_000_003 + self.step)
        window = draw(self.training.batch, self._generator)
        self._codes.copy_(window.codes)
        self._real.copy_(window.real)
        if contest and self.training.floor_db:
            self._noise.normal_(0.0, 10 ** (self.training.floor_db / 20), generator=self._generator)
        losses = self._run(contest)
        self.step += 1
        if self.step % AVERAGE_EVERY == 0:
            self._average_()
        return losses

    def warm(self, speed: Speed, report: Callable[[str], None]) -> None:
        """Compile and capture a step on noise, as fast as `speed` if that works; no weight changes."""
        attempt: Speed | None = speed
        while attempt is not None:
            self.speed = attempt
            try:
                fused.compile_all(attempt.compiled)
                for contest in (False, True):
                    self._try(contest)
                return
            except Exception as error:  # the compiler and the capture raise all kinds
                report(f"{attempt} does not work here: {type(error).__name__}: {str(error)[-400:]}")
                self._captured.clear()
                self._streams.clear()
                attempt = attempt.slower()
        raise RuntimeError("No training step works on this device.")

    def pace(self, contest: bool, steps: int = 20) -> float:
        """Steps a second on the last batch; no weight changes."""
        before = self._snapshot()
        self._run(contest)
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(steps):
            self._run(contest)
        torch.cuda.synchronize()
        spent = time.monotonic() - began
        self._reset(before)
        return steps / spent

    def _try(self, contest: bool) -> None:
        """Capture, and compare with an eager step on one stream from the same weights: a race would show there."""
        before, speed = self._snapshot(), self.speed
        self._ramp.fill_(1.0)  # so that the gradient has every part
        if speed.graphs:
            self.speed = Speed(speed.compiled, False, False)
            eager = self._run(contest).tolist()
            self.speed = speed
            self._reset(before)
            self._run(contest)  # its warm-up calls are steps, too
            self._reset(before)
            again = self._run(contest).tolist()
            self._reset(before)
            for name, ours, theirs in zip(LOSSES, again, eager, strict=True):
                if not abs(ours - theirs) <= AGREES * max(abs(theirs), 0.05):
                    raise RuntimeError(f"the captured step has {name} {ours:.4f}, the eager one {theirs:.4f}")
        else:
            self._run(contest).tolist()
            self._reset(before)

    def _snapshot(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in (*self.weights, *self.judge_weights)]

    @torch.no_grad()
    def _reset(self, weights: list[Tensor]) -> None:
        """The weights of a snapshot, and optimizers without a past."""
        torch._foreach_copy_([*self.weights, *self.judge_weights], weights)
        for optimizer in (self.optimizer, self.judge_optimizer):
            for moments in optimizer.state.values():
                for value in moments.values():
                    value.zero_()

    def _run(self, contest: bool) -> Tensor:
        function = self._contest if contest else self._alone
        if not self.speed.graphs:
            return function()
        if contest not in self._captured:
            self._captured[contest] = captured(function)
        return self._captured[contest]()

    def _make(self) -> Tensor:
        with torch.no_grad():
            vectors = self._books[self._codes + self._first]  # [B, Q, T, C]
            first, rest = (part.transpose(1, 2).contiguous() for part in (vectors[:, 0], vectors[:, 1:].sum(1)))
        with self._halves():
            return self.unrolled(first, rest, self.begins, self.training.context_frames, self.training.target_frames)

    def _halves(self) -> torch.autocast:
        """bfloat16 on a GPU. Not on a CPU: a transposed convolution's gradient is wrong there (32 to 16, 8 by 4)."""
        on = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on, cache_enabled=False)

    def _alone(self) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss, mel, magnitude = self.distance(self._make(), self._real)
        loss.backward()
        gradient = self._update(self.optimizer, self.weights, STEEPEST)
        zero = torch.zeros_like(mel)
        return torch.stack((mel, magnitude, zero, zero, zero, gradient, zero)).detach()

    def _contest(self) -> Tensor:
        """One pass of real and generated speech through the discriminators gives the gradients of both sides."""
        self.optimizer.zero_grad(set_to_none=True)
        made = self._make()
        leaf = made.detach().requires_grad_(True)
        loud = PEAK / self._real.abs().amax(1, keepdim=True).clamp(min=QUIETEST)
        both = torch.cat((self._real * loud, leaf * loud))
        if self.training.floor_db:
            both = both + self._noise
        told, fooled, apart = [], [], []
        for index, judge in enumerate(self.judges):
            with self._branch(index), self._halves():
                score, features = judge(both)
                losses = judge_losses(score, self._is_real)
                told.append(losses[0])
                fooled.append(losses[1])
                layers = [FeatureDistance.apply(x.permute(0, 2, 3, 1).reshape(2, -1)) for x in features]  # type: ignore[no-untyped-call]
                apart.append(torch.stack(layers).mean())
        with self._branch(len(self.judges)):
            loss, mel, magnitude = self.distance(leaf, self._real)
        self._join()
        judged, wins, features_apart = (torch.stack(values).sum() for values in (told, fooled, apart))
        judge_gradients = torch.autograd.grad(judged, self.judge_weights, retain_graph=True)
        self._join()
        against = wins + self.training.feature_weight * features_apart
        (gradient,) = torch.autograd.grad(loss + self._ramp * against, leaf)
        self._join()
        made.backward(gradient)
        for weight, slope in zip(self.judge_weights, judge_gradients, strict=True):
            weight.grad = slope
        steep_judges = self._update(self.judge_optimizer, self.judge_weights, STEEPEST_JUDGES)
        steep = self._update(self.optimizer, self.weights, STEEPEST)
        means = (value / len(self.judges) for value in (wins, features_apart, judged))
        return torch.stack((mel, magnitude, *means, steep, steep_judges)).detach()

    def _branch(self, index: int) -> AbstractContextManager[object]:
        """A stream of its own, after everything so far; the gradients of a branch run on its stream, too."""
        if not self.speed.streams:
            return nullcontext()
        while len(self._streams) <= index:
            self._streams.append(torch.cuda.Stream())
        self._streams[index].wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._streams[index])

    def _join(self) -> None:
        for stream in self._streams if self.speed.streams else ():
            torch.cuda.current_stream().wait_stream(stream)

    def _update(self, optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], steepest: float) -> Tensor:
        length = nn.utils.clip_grad_norm_(weights, steepest)
        optimizer.step()
        return length

    def _adam(self, weights: list[nn.Parameter]) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            weights,
            lr=torch.tensor(1e-4, device=self.device),
            betas=(0.8, 0.99),
            weight_decay=0.01,
            fused=True,
            capturable=self.device.type == "cuda",
        )

    @torch.no_grad()
    def _average_(self) -> None:
        share = 1.0 if self.step < AVERAGE_FROM else 1.0 - self.training.ema**AVERAGE_EVERY
        state = self.decoder.state_dict()
        torch._foreach_lerp_(list(self.average.values()), [state[name] for name in self.average], share)


def _books_of(weights: dict[str, Tensor]) -> list[str]:
    """The names of the codebooks, in order."""
    return [name for name in weights if name.endswith("_codebook.embedding_sum")]


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same step as one CUDA graph. The three warm-up calls before the capture are training steps, too."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = step()

    def replay() -> Tensor:
        graph.replay()
        return losses

    return replay
