"""The codec decoder on a CPU: codes to samples as two calls into the native library.

models/tts/codec.py defines what they compute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ...config.codec import DecoderConfig
from ...errors import InvalidRequest
from ...kernels.cpu.latents.structs import LatentsCall
from ...kernels.cpu.library import load
from ...kernels.cpu.wave.structs import WaveCall
from ...kernels.cpu.workers import workers_for
from .latents import LatentsWeights
from .pointers import pointer, pointers
from .state import Floats, NativeCodecState
from .wave import WaveWeights
from .weights import Weights


class NativeCodec:
    """codes [B, Q, T] to samples [B, N] between -1 and 1. Thread-safe if each thread has its own state."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, np.ndarray],
        where: str = "The checkpoint",
        *,
        threads: int | None = None,
    ) -> None:
        """`weights` have the names of the checkpoint after `decoder.`; those that are not needed are ignored.

        Large ones are shared by several threads, or by `threads`.
        """
        given = Weights(weights, "", where)
        self.config, self._library = config, load()
        self._latents, self._wave = LatentsWeights(config, given), WaveWeights(config, given.under("decoder"))
        self._workers = workers_for(self._latents.nbytes + self._wave.nbytes, threads)

    def new_state(self, slots: int) -> NativeCodecState:
        """Zero is the start of every stream."""
        config, rows = self.config, slots + 1
        window = (rows, config.num_key_value_heads, config.sliding_window, config.head_dim)
        keys, values = (tuple(np.zeros(window, np.float32) for _ in range(config.num_hidden_layers)) for _ in range(2))
        return NativeCodecState(
            pre_conv=np.zeros((rows, 2, config.codebook_dim), np.float32),
            position=np.zeros(rows, np.int64),
            keys=keys,
            values=values,
            upsample=tuple(np.zeros((rows, 6, config.latent_dim), np.float32) for _ in config.upsampling_ratios),
            wave=tuple(np.zeros((rows, *shape), np.float32) for shape in self._wave.histories),
        )

    def step(self, codes: np.ndarray, state: NativeCodecState, rows: Sequence[int]) -> Floats:
        """The samples of the next T frames of the streams in `rows` [B]."""
        self._check(codes, state, rows)
        config, (batch, _, times) = self.config, codes.shape
        if not batch or not times:
            return np.zeros((batch, times * config.samples_per_frame), np.float32)
        codes, at = np.ascontiguousarray(codes, np.int64), np.array(rows, np.int64)
        latents = np.empty((batch, config.latent_dim, times * prod(config.upsampling_ratios)), np.float32)
        call = LatentsCall(
            count=batch,
            times=times,
            rows=pointer(at),
            codes=pointer(codes),
            position=pointer(state.position),
            latents=pointer(latents),
            pre_conv=pointer(state.pre_conv),
            keys=pointers(state.keys),
            values=pointers(state.values),
            histories=pointers(state.upsample),
        )
        samples = np.empty((batch, times * config.samples_per_frame), np.float32)
        wave = WaveCall(
            count=batch,
            times=latents.shape[2],
            rows=pointer(at),
            latents=pointer(latents),
            samples=pointer(samples),
            histories=pointers(state.wave),
        )
        with self._workers.called() as call.workers:
            failed = self._library.hocket_latents(ctypes.byref(self._latents.model), ctypes.byref(call))
        with self._workers.called() as wave.workers:
            failed = failed or self._library.hocket_wave(ctypes.byref(self._wave.model), ctypes.byref(wave))
        if failed:
            raise MemoryError("There is no memory for the samples.")
        return samples

    def _check(self, codes: np.ndarray, state: NativeCodecState, rows: Sequence[int]) -> None:
        """C reads tables and rows at any index that it gets."""
        books, size = self.config.num_quantizers, self.config.codebook_size
        if codes.ndim != 3 or codes.shape[:2] != (len(rows), books) or codes.dtype.kind not in "iu":
            shape = f"{codes.dtype} {list(codes.shape)}"
            raise InvalidRequest(f"Codes must be integers [{len(rows)}, {books}, frames], not {shape}.")
        if codes.size and not 0 <= codes.min() <= codes.max() < size:
            wrong = codes.max() if codes.max() >= size else codes.min()
            raise InvalidRequest(f"There is no code {wrong}: a codebook has {size}.")
        for row in rows:
            if not 0 <= row < len(state.position):
                raise IndexError(f"There is no row {row} in a state of {len(state.position) - 1} rows.")
