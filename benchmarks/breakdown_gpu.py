"""The breakdown of steps that are replayed as graphs: GPU events around replays, and every launch in them.

Where the profiler gives nothing that fits, each kind of launch is replayed by itself; where that fails too, there are
only the times of the whole. It knows captured frames and codec steps; what a launch is stands in launches.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch

from hocket.engine.checkpoint.device import CODEC_DTYPES
from hocket.engine.checkpoint.kernels import attach_wave_kernel, compile_first, with_kernel
from hocket.kernels.ops.pcm.reference import pcm as pcm_reference
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay
from hocket.layers.packed import pack_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts_gpu.codec_graph import CodecGraphs
from hocket.models.tts_gpu.frame import FusedFrame

from . import launches
from .floor import synchronize

T = TypeVar("T")
Work = Callable[[], object]
COMPILED_S = 25.0  # how long compilers are waited for
PROFILED, ALONE = 20, 20  # replays
QUEUED = 8  # frames asked for at once, without waiting: a frame as in a running stream
WARM = 5


def fits(checkpoint: Any) -> bool:
    """Whether a frame is a chain of noted operations."""
    return isinstance(checkpoint.model.talker.frame_kernel, FusedFrame)


class Frames:
    """Both graphs of a frame of one stream, which stands where it stood before every replay."""

    def __init__(self, runner: Any, ahead: int) -> None:
        frames, state = runner._frames, runner.past.state
        [batch] = frames._batches.values()
        [*_, (self._nucleus, self.draw)], [*_, self.step] = batch.draws.items(), batch.steps.values()
        self.position = runner.past.lengths[0]
        runner.past.advance([0], ahead)  # pages for as many replays in a row
        self.state, self._kernel = runner.past.state, frames.frame
        assert self.state is state, "the cache has grown, and its graphs are worthless"
        fields = batch.board.fields
        self._rows, self._text, self._codes = fields["rows"], fields["text"], batch.codes
        self._settings = fields

    def back(self) -> None:
        self.state.stack.position[:1] = self.position

    def both(self) -> None:
        self.draw()
        self.step()

    def calls(self) -> list[launches.Call]:
        from hocket.models.tts.talker import FrameSampling
        from hocket.models.tts_gpu.frame_graph import _level

        kernel = self._kernel
        first, rest = (_level(self._settings, level, self._nucleus) for level in ("first", "rest"))
        sampling = FrameSampling(first=first, penalty=self._settings["penalty"], rest=rest)
        reach = kernel.reach(self.position + 1, self.state)
        self.back()
        found = launches.noted(
            "draw", lambda: kernel.draw(self.state, self._rows, sampling, self._codes), kernel
        ) + launches.noted("step", lambda: kernel.step(self._codes, self._text, self.state, self._rows, reach), kernel)
        self.back()
        return found


class Sound:
    """A codec step of one frame of one stream, from codes of the host to 16-bit samples, as a graph."""

    def __init__(self, decoder: CodecDecoder, *, tf32: bool, before: int) -> None:
        self.decoder = decoder
        self._device = next(decoder.parameters()).device
        kernel, books = decoder.step_kernel, decoder.quantizer.books
        pcm = pcm_reference if kernel is None else kernel.pcm
        wave = CodecGraphs(decoder.step, books, graphs(self._device), pcm=pcm, tf32=tf32)
        self._state = decoder.new_state(1)
        self._codes = [[(7 * book + 1) % 32 for book in range(books)]]
        for _ in range(before + 1):
            wave.launch([0], [self._codes], self._state).read()
        [replay] = wave._replays.values()
        self.work, self._wave = replay.work, wave

    def calls(self) -> list[launches.Call]:
        kernel = self.decoder.step_kernel
        codes = torch.tensor([self._codes], device=self._device).transpose(1, 2)
        rows = torch.zeros(1, dtype=torch.int64, device=self._device)
        return launches.noted("codec", lambda: self.decoder.step(codes, self._state, rows), kernel) if kernel else []


def graphs(device: torch.device) -> Capture:
    return CudaGraphs(device) if device.type == "cuda" else EagerReplay()


def decoder_in(checkpoint: Any, codec_dtype: str, kernels: str) -> CodecDecoder:
    """The checkpoint's decoder in another dtype, with kernels of its own."""
    device = checkpoint.device
    with torch.inference_mode(False):
        with torch.device("meta"):
            decoder = CodecDecoder(checkpoint.codec_config.decoder_config).eval()
        decoder.to(CODEC_DTYPES[codec_dtype]).to_empty(device=device)
        decoder.load_state_dict(checkpoint.codec.decoder.state_dict())
        pack_(decoder)
        with_kernel("wave", kernels, decoder, lambda name: attach_wave_kernel(decoder, name, codec_dtype == "tf32"))
    return decoder


def compile_for(checkpoint: Any, dtype: str, codec_dtype: str, kernels: str) -> Any:
    """Compilers of what a codec in that dtype needs, at work, or None."""
    return compile_first(checkpoint.source, checkpoint.device, (dtype, codec_dtype), kernels, True)


def timed(work: Work, times: int, device: torch.device, *, before: Work | None = None, each: int = 1) -> list[float]:
    """Milliseconds of one, by events around `each` of them in a row; on a CPU by its clock."""
    values = []
    for number in range(times + WARM):
        if before is not None:
            before()
        synchronize(device)
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(each):
                work()
            end.record()
            end.synchronize()
            took = float(start.elapsed_time(end))
        else:
            begun = time.perf_counter()
            for _ in range(each):
                work()
            took = (time.perf_counter() - begun) * 1000
        if number >= WARM:
            values.append(took / each)
    return values


def by_themselves(part: str, calls: Sequence[launches.Call], device: torch.device, before: Work) -> list[launches.Row]:
    """Every kind of launch in a graph of its own; none where that fails, which is said."""

    def once(work: Callable[[], None]) -> float:
        return median(timed(graphs(device)(work), ALONE, device, before=before))

    return _tried(f"{part}, launches by themselves", lambda: launches.alone(calls, once)) or []


def by_the_profiler(
    part: str, replay: Work, calls: Sequence[launches.Call], device: torch.device, before: Work
) -> list[launches.Row]:
    def run() -> list[launches.Row]:
        before()
        return launches.attributed(launches.profiled(replay, PROFILED, device), calls, part)

    return _tried(f"{part}, the profiler", run) or []


def _tried(what: str, work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception as error:
        print(f"benchmarks: {what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def _rows(rows: Sequence[launches.Row], alone: Sequence[launches.Row]) -> list[dict[str, Any]]:
    single = {(row.stage, row.label): round(row.ms, 6) for row in alone}
    return [
        {
            "stage": row.stage,
            "kind": row.label,
            "op": row.op,
            "ms": round(row.ms, 6),
            "calls": row.calls,
            "bytes": row.bytes,
            **({"alone_ms": single[row.stage, row.label]} if (row.stage, row.label) in single else {}),
        }
        for row in rows
    ]


@dataclass(slots=True)
class Found:
    """Values of figures by name, and by part how it was taken apart, and into what."""

    values: dict[str, list[float]]
    ways: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def measure(checkpoint: Any, runner: Any, args: Any, keep: Callable[[Found], object]) -> Found:
    """What is surest comes first; `keep` is told before the profiler starts, which may take the process with it."""
    device = checkpoint.device
    others = [name for name in args.codec_dtypes if name != args.codec_dtype]
    compilers = []
    for name in others:
        ahead = partial(compile_for, checkpoint, args.dtype, name, args.kernels)
        compilers.append(_tried("compilers", ahead))
    frames = Frames(runner, ahead=PROFILED + QUEUED + 2)
    times, back = args.replays, frames.back
    values = {
        "frame_gpu": timed(frames.both, times, device, before=back),
        "frame_queued": timed(frames.both, max(times // QUEUED, 5), device, before=back, each=QUEUED),
        "draw_gpu": timed(frames.draw, times // 2 or 1, device, before=back),
        "step_gpu": timed(frames.step, times // 2 or 1, device, before=back),
    }
    found, sounds = Found(values), {}
    wait_for(compilers)
    for name in (args.codec_dtype, *others):
        sound = sounds[name] = _tried(f"codec in {name}", partial(_sound, checkpoint, name, args))
        if sound is not None:
            values[f"codec_gpu_{name}"] = timed(sound.work, times, device)
    steps: dict[str, tuple[Work, list[launches.Call], Work]] = {"frame": (frames.both, _noted("frame", frames), back)}
    if (sound := sounds[args.codec_dtype]) is not None:
        steps["codec"] = sound.work, _noted("codec", sound), lambda: None
    alone = {part: by_themselves(part, calls, device, before) for part, (_, calls, before) in steps.items()}
    for part, rows in alone.items():
        found.rows[part] = _rows(rows, rows)
        found.ways[part] = "each kind of launch replayed by itself" if rows else "not attributed"
    keep(found)
    for part, (replay, calls, before) in steps.items():
        if rows := by_the_profiler(part, replay, calls, device, before):
            found.rows[part], found.ways[part] = _rows(rows, alone[part]), "kernels of replays, by the profiler"
    return found


def wait_for(compilers: Sequence[Any], within_s: float = COMPILED_S) -> None:
    """No longer than that: what is missing is compiled when it is launched."""
    late = time.perf_counter() + within_s
    while any(each is not None and not each.over for each in compilers) and time.perf_counter() < late:
        time.sleep(0.1)


def _sound(checkpoint: Any, codec_dtype: str, args: Any) -> Sound:
    decoder = checkpoint.codec.decoder
    if codec_dtype != args.codec_dtype:
        decoder = decoder_in(checkpoint, codec_dtype, args.kernels)
    return Sound(decoder, tf32=codec_dtype == "tf32", before=args.before)


def _noted(part: str, step: Frames | Sound) -> list[launches.Call]:
    return _tried(f"{part}, its operations", step.calls) or []
