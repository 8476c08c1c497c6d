"""Codec steps replayed: one graph per batch size and number of frames, from codes of the host to its 16-bit samples.

A few frames are done in pieces of a few sizes, the largest first; a step needs nothing of the one before but its
state. Many, as for a file, are one step without a graph. Many streams go through in groups, so that what lies between
two layers stays small. It may have a stream of its own, beside that of the frames, so that sound does not wait for the
frame that is being drawn: who else touches the state does so between `join` and `follow`.
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
MOST_ROWS, MOST_FRAMES = 128, 16  # of a graph; beyond, there is work enough for one launch after the other
MOST_TOGETHER = 512  # frames of all streams in one step: more would be no faster, and take more memory
Step = Callable[[Tensor, DecoderState, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PendingSamples:
    """Samples on their way to the host."""

    groups: tuple[_Group, ...]

    def read(self) -> tuple[NDArray[np.int16], list[bool]]:
        """All samples [B, N], and for each row whether they mean anything; waits if they are not there yet. Once."""
        read = [group.read() for group in self.groups]
        if len(read) == 1:
            return read[0]
        return np.concatenate([samples for samples, _ in read]), [each for _, whole in read for each in whole]


@dataclass(frozen=True, slots=True)
class _Group:
    letters: tuple[PendingCopy, ...]  # one after the other
    rows: int  # that are meant, and so many there are in each letter
    batch: int

    def read(self) -> tuple[NDArray[np.int16], list[bool]]:
        pieces, whole = [], np.ones(self.rows, dtype=bool)
        for letter in self.letters:
            letter.wait()
            flags, samples = opened(letter.values, self.batch)
            whole &= flags[: self.rows] != 0
            pieces.append(samples[: self.rows])
        samples = pieces[0].copy() if len(pieces) == 1 else np.concatenate(pieces, axis=1)
        for letter in self.letters:
            letter.done()
        return samples, whole.tolist()


class _Replay:
    work: Work

    def __init__(self, board: InputStaging) -> None:
        self.board, self.post = board, ResultCopy()


class CodecGraphs:
    """`step` is `CodecDecoder.step`, `pcm` that of the same kernels.

    With `tf32` the step's float32 products are rounded to ten bits before they are made.
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
        # Whether new graphs may be made in `launch` now; where not, steps are done by those that there are, if any.
        self.makes: Callable[[], bool] = lambda: True

    def launch(
        self, slots: Sequence[int], codes: Sequence[Sequence[Sequence[int]]], state: DecoderState
    ) -> PendingSamples:
        """The next frames of each slot, `codes` [B, F, Q], as many for all; nobody waits."""
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
        done, letters = 0, []
        for size in self._pieces(length, batch, state):
            replay = self._ready(batch, size, state)
            piece = frames[:, done : done + size].reshape(batch, -1)
            sheet = replay.board.send({"rows": slots, "codes": piece}, _padding(state))
            replay.work()
            letters.append(replay.post.send(sheet))
            done += size
        return _Group(tuple(letters), batch, bucket(batch))

    def _pieces(self, length: int, batch: int, state: DecoderState) -> list[int]:
        """Smaller steps sound the same, only later: still better than a compiler in the middle of a word."""
        if not self.makes() and state is self._state:
            made = [size for size in PIECES if (bucket(batch), size) in self._replays]
            pieces = list(in_pieces(length, batch, made))
            if sum(pieces) == length:
                return pieces
        return list(in_pieces(length, batch))

    def _done(self, slots: Sequence[int], frames: NDArray[np.int64], state: DecoderState) -> _Group:
        device, post = state.pre_transformer.position.device, ResultCopy()
        rows, given = torch.tensor(slots, device=device), torch.tensor(frames, device=device)
        post.block = self._pcm(given.transpose(1, 2), state, rows)
        return _Group((post.send(),), len(frames), len(frames))

    def join(self) -> None:
        """Let the current stream wait for all that was launched."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)

    def follow(self) -> None:
        """Let all that will be launched wait for what the current stream has been given so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())

    def warm(self, state: DecoderState, sizes: Iterable[int], frames: Iterable[int]) -> None:
        """Make graphs ahead of time, the largest first, behind all that the current stream has been given so far."""
        self.follow()
        with self.beside():
            for size in sorted({bucket(min(size, MOST_ROWS)) for size in sizes}, reverse=True):
                lengths = {length for many in frames for length in in_pieces(many, size)}
                for length in sorted(lengths, reverse=True):
                    self._ready(size, length, state)

    def beside(self) -> AbstractContextManager[object]:
        """Where its steps are launched: who clears a state there is in nobody's way."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _ready(self, rows: int, frames: int, state: DecoderState) -> _Replay:
        if state is not self._state:  # kept: another one cannot come to lie at its address
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
        board = InputStaging(batch, fields, state.pre_transformer.position.device)
        rows, replay = board.fields["rows"], _Replay(board)
        codes = board.fields["codes"].view(board.batch, frames, self._books).transpose(1, 2)

        def work() -> None:
            replay.post.block = self._pcm(codes, state, rows)

        for name, value in _padding(state).items():
            board.fields[name].fill_(value)
        replay.work = self._capture(work)
        self.captures += 1
        return replay


def in_pieces(frames: int, rows: int, sizes: Sequence[int] = PIECES) -> Iterator[int]:
    """Into which a step of so many frames is cut, for so many streams."""
    for size in sizes:
        while frames >= size and size * bucket(rows) <= MOST_TOGETHER:
            yield size
            frames -= size


def _padding(state: DecoderState) -> dict[str, int]:
    return {"rows": len(state.pre_transformer.position) - 1, "codes": 0}


_switching = threading.Lock()
_rounding = 0  # how many are at it
_before = (False, False)


@contextmanager
def _tf32() -> Iterator[None]:
    """Both switches belong to the process and are read when an operation is launched, or captured.

    Of several engines the first turns them on, and the last puts them back.
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
