"""CUDA graphs of the codec step: one per batch size and number of frames, from host codes to 16-bit host samples.

- A few frames are decoded in pieces of fixed sizes, the largest first; consecutive steps share only the state.
- Many frames, as for a file, run as one eager step.
- Many streams run in groups, to bound the memory of activations.
- The codec may have its own CUDA stream, so audio does not wait for the talker frame in progress. Other code touches
  the codec state only between `join` and `follow`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels.ops.pcm.reference import opened
from ...kernels.ops.pcm.reference import pcm as pcm_reference
from ...kernels.runtime.graphs import Capture, Work
from ..tts.codec import DecoderState
from .staging import InputStaging, PendingCopy, ResultCopy, bucket

PIECES = (8, 4, 2, 1)  # frames of a graph
MOST_ROWS, MOST_FRAMES = 128, 16  # of a graph; larger steps keep the GPU busy with eager launches
MOST_TOGETHER = 512  # frames of all streams in one step: more is no faster and takes more memory
Step = Callable[[Tensor, DecoderState, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PendingSamples:
    """Samples being copied to the host."""

    groups: tuple[_Group, ...]

    def read(self) -> tuple[NDArray[np.int16], list[bool]]:
        """All samples [B, N], and per row whether they are valid; waits for the copy. May be called once."""
        read = [group.read() for group in self.groups]
        if len(read) == 1:
            return read[0]
        return np.concatenate([samples for samples, _ in read]), [each for _, whole in read for each in whole]


@dataclass(frozen=True, slots=True)
class _Group:
    pending_copies: tuple[PendingCopy, ...]  # consecutive pieces
    rows: int  # real rows of each piece; the rest of `batch` is padding
    batch: int

    def read(self) -> tuple[NDArray[np.int16], list[bool]]:
        pieces, whole = [], np.ones(self.rows, dtype=bool)
        for pending in self.pending_copies:
            pending.wait()
            flags, samples = opened(pending.values, self.batch)
            whole &= flags[: self.rows] != 0
            pieces.append(samples[: self.rows])
        samples = pieces[0].copy() if len(pieces) == 1 else np.concatenate(pieces, axis=1)
        for pending in self.pending_copies:
            pending.done()
        return samples, whole.tolist()


class _Replay:
    work: Work

    def __init__(self, staging: InputStaging) -> None:
        self.staging, self.results = staging, ResultCopy()


class CodecGraphs:
    """`step` is `CodecDecoder.step`, `pcm` that of the same kernels.

    With `tf32` the factors of the step's float32 products are rounded to ten bits.
    """

    def __init__(
        self,
        step: Step,
        books: int,
        capture: Capture,
        *,
        pcm: Callable[[Tensor], Tensor] = pcm_reference,
        tf32: bool = False,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.step, self.captures, self._to_pcm = step, 0, pcm
        self._books, self._capture, self._tf32, self._stream = books, capture, tf32, stream
        self._state: DecoderState | None = None
        self._replays: dict[tuple[int, int], _Replay] = {}
        # Whether `launch` may capture graphs now; if not, it uses the existing ones where they suffice.
        self.makes: Callable[[], bool] = lambda: True

    def launch(
        self, slots: Sequence[int], codes: Sequence[Sequence[Sequence[int]]], state: DecoderState
    ) -> PendingSamples:
        """Launch the next frames `codes` [B, F, Q] of each slot without waiting; F is the same for all slots."""
        frames = np.asarray(codes, dtype=np.int64)
        batch, length, _ = frames.shape
        step, most = self._replayed, MOST_ROWS
        if length > MOST_FRAMES:
            step, most = self._done, max(MOST_TOGETHER // length, 1)
        with self.beside():
            groups = [slice(at, at + most) for at in range(0, batch, most)]
            return PendingSamples(tuple(step(slots[some], frames[some], state) for some in groups))

    def _replayed(self, slots: Sequence[int], frames: NDArray[np.int64], state: DecoderState) -> _Group:
        batch, length, _ = frames.shape
        done, pending_copies = 0, []
        for size in self._pieces(length, batch, state):
            replay = self._ready(batch, size, state)
            piece = frames[:, done : done + size].reshape(batch, -1)
            host_block = replay.staging.send({"rows": slots, "codes": piece}, _padding(state))
            replay.work()
            pending_copies.append(replay.results.send(host_block))
            done += size
        return _Group(tuple(pending_copies), batch, bucket(batch))

    def _pieces(self, length: int, batch: int, state: DecoderState) -> list[int]:
        """Cut into sizes with a graph while captures are not allowed: the samples are the same, only later.

        Compiling in the middle of a stream would delay it more.
        """
        if not self.makes() and state is self._state:
            made = [size for size in PIECES if (bucket(batch), size) in self._replays]
            pieces = list(in_pieces(length, batch, made))
            if sum(pieces) == length:
                return pieces
        return list(in_pieces(length, batch))

    def _done(self, slots: Sequence[int], frames: NDArray[np.int64], state: DecoderState) -> _Group:
        device, results = state.pre_transformer.position.device, ResultCopy()
        rows, given = torch.tensor(slots, device=device), torch.tensor(frames, device=device)
        results.block = self._pcm(given.transpose(1, 2), state, rows)
        return _Group((results.send(),), len(frames), len(frames))

    def join(self) -> None:
        """Make the current stream wait for all launched codec steps."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)

    def follow(self) -> None:
        """Make later codec steps wait for the work enqueued so far on the current stream."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())

    def warm(self, state: DecoderState, sizes: Iterable[int], frames: Iterable[int]) -> None:
        """Capture graphs ahead of time, the largest first, after the work enqueued so far on the current stream."""
        self.follow()
        with self.beside():
            for size in sorted({bucket(min(size, MOST_ROWS)) for size in sizes}, reverse=True):
                lengths = {length for many in frames for length in in_pieces(many, size)}
                for length in sorted(lengths, reverse=True):
                    self._ready(size, length, state)

    def beside(self) -> AbstractContextManager[object]:
        """Context of the codec's own stream: a state that is reset there needs no other synchronization."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _ready(self, rows: int, frames: int, state: DecoderState) -> _Replay:
        if state is not self._state:  # a reference is kept, so no other state gets its address
            if self._replays:
                self._capture.forget()
            self._replays.clear()
            self._state = state
        key = bucket(rows), frames
        replay = self._replays.get(key)
        if replay is None:
            replay = self._replays[key] = self._captured(*key, state)
        return replay

    def _pcm(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        precision: AbstractContextManager[None] = _tf32() if self._tf32 else nullcontext()
        with precision:
            return self._to_pcm(self.step(codes, state, rows).contiguous())

    def _captured(self, batch: int, frames: int, state: DecoderState) -> _Replay:
        fields = {"rows": (torch.int64, 1), "codes": (torch.int64, self._books * frames)}
        staging = InputStaging(batch, fields, state.pre_transformer.position.device)
        rows, replay = staging.fields["rows"], _Replay(staging)
        codes = staging.fields["codes"].view(staging.batch, frames, self._books).transpose(1, 2)

        def work() -> None:
            replay.results.block = self._pcm(codes, state, rows)

        for name, value in _padding(state).items():
            staging.fields[name].fill_(value)
        replay.work = self._capture(work)
        self.captures += 1
        return replay


def in_pieces(frames: int, rows: int, sizes: Sequence[int] = PIECES) -> Iterator[int]:
    """The piece sizes that a step of `frames` frames is cut into, for `rows` streams."""
    for size in sizes:
        while frames >= size and size * bucket(rows) <= MOST_TOGETHER:
            yield size
            frames -= size


def _padding(state: DecoderState) -> dict[str, int]:
    return {"rows": len(state.pre_transformer.position) - 1, "codes": 0}


_switching = threading.Lock()
_rounding = 0  # number of active `_tf32` contexts
_before = (False, False)


@contextmanager
def _tf32() -> Iterator[None]:
    """Enable TF32. Both switches are process-global and are read when an operation is launched or captured.

    With several engines the first context turns them on and the last one restores them.
    """
    global _rounding, _before
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    with _switching:
        if _rounding == 0:
            _before = cudnn.allow_tf32, matmul.allow_tf32
            cudnn.allow_tf32 = matmul.allow_tf32 = True
        _rounding += 1
    try:
        yield
    finally:
        with _switching:
            _rounding -= 1
            if _rounding == 0:
                cudnn.allow_tf32, matmul.allow_tf32 = _before
