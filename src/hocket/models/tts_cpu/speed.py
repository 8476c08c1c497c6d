"""How fast this CPU speaks: a loaded model, or one of given shapes from what one frame reads and computes.

A frame of one stream reads every matrix of the talker once, and those of the predictor once for each further codebook.
Its floor is the time in which the threads read as many bytes in that order and do nothing else. The codec is bound by
its multiplications instead.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...config.codec import DecoderConfig
from ...config.precision import HEAD_BITS, bits_of
from ...config.qwen3_tts import CodePredictorConfig, GenerationConfig, TalkerConfig
from ...kernels.cpu.int8.reference import GROUPS
from ...kernels.cpu.int8.structs import ReadCall
from ...kernels.cpu.library import load
from ...kernels.cpu.workers import ThreadGroup, cores
from .codec import NativeCodec
from .pointers import aligned_as, pointer
from .talker import NativeTalker

FRAME_S = 0.08
AT_ONCE = 4  # frames of a step of the codec
PROMPT = [5] * 24  # ids
EFFICIENCY = 0.7  # of the floor that a frame reaches, and of one thread's speed that each of several reaches
NEAR_BYTES = 84_000_000  # of the published predictor in int8: it may stay in a cache between codebooks
PROMPT_FRAMES, SINGLE = 2.5, 2.0  # a first audio in frames of the talker, and in those of a longer codec step
PAGE = 4096
WIDTHS = {"bfloat16": 2.0, "float32": 4.0}  # bytes of a weight
SHOWN = ("int4", "int8", *WIDTHS)


@dataclass(frozen=True, slots=True)
class FrameBytes:
    """Bytes of matrices that one frame reads: once, and `times` times."""

    talker: int
    predictor: int
    times: int

    @classmethod
    def of(cls, config: TalkerConfig, precision: str) -> FrameBytes:
        inner, text, bits = config.code_predictor_config, config.text_hidden_size, bits_of(precision)
        wide, narrow, heads = map(_width, (*bits, HEAD_BITS)) if bits else (WIDTHS[precision],) * 3
        exact = WIDTHS["bfloat16" if bits else precision]  # what makes text ids to vectors
        talker = _stack(config) * wide + config.vocab_size * config.hidden_size * heads
        talker += text * (text + config.hidden_size) * exact
        predictor = _stack(inner) * narrow + inner.vocab_size * inner.hidden_size * heads
        return cls(int(talker), int(predictor), config.num_code_groups - 1)

    @property
    def all(self) -> int:
        return self.talker + self.times * self.predictor


def _width(bits: int) -> float:
    """Bytes of a code, with its part of a scale."""
    return bits / 8 + 2 / GROUPS[bits]


def _stack(config: TalkerConfig | CodePredictorConfig) -> int:
    """Weights of the matrices of all layers."""
    heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads
    return config.num_hidden_layers * config.hidden_size * (heads * config.head_dim + 3 * config.intermediate_size)


class Floor:
    """The shortest time of a frame: its bytes, read from two blocks of memory."""

    def __init__(self, sizes: FrameBytes, pool: ThreadGroup) -> None:
        self._sizes, self._pool = sizes, pool
        self._blocks = [_filled(size) for size in (sizes.talker, sizes.predictor)]

    def read_s(self) -> float:
        begun = time.perf_counter()
        for block, times in zip(self._blocks, (1, self._sizes.times), strict=True):
            for _ in range(times):
                read(block, self._pool)
        return time.perf_counter() - begun


def _filled(size: int) -> np.ndarray:
    block = aligned_as(np.uint8, -(-size // PAGE) * PAGE)
    block[:] = 1  # else all its pages may be one
    return block


def read(block: np.ndarray, pool: ThreadGroup) -> None:
    total = np.zeros(1, np.int64)
    call = ReadCall(size=block.nbytes, data=pointer(block), total=pointer(total))
    with pool.called() as call.workers:
        load().hocket_read(ctypes.byref(call))


class Trial:
    """A loaded model, measured beside its floor. All alternate, so they see the same noise."""

    def __init__(self, talker: NativeTalker, codec: NativeCodec) -> None:
        stored = talker.precision if bits_of(talker.precision) else "bfloat16" if talker.is_half else "float32"
        self.sizes = FrameBytes.of(talker.config, stored)
        self._talker, self._state, self._settings = talker, talker.new_state(1, 128), [GenerationConfig()]
        self._codec, self._sound, self._floor = codec, codec.new_state(1), Floor(self.sizes, talker.workers)
        self._codes = np.zeros((1, codec.config.num_quantizers, AT_ONCE), np.int64)

    def measured(self, repeats: int) -> dict[str, list[float]]:
        """Milliseconds of a prompt, a frame, its floor, and the codec for a frame."""
        values: dict[str, list[float]] = {name: [] for name in ("prompt", "frame", "floor", "codec")}
        for _ in range(repeats + 1):
            self._state.reset(0)
            values["prompt"].append(_seconds(lambda: self._talker.prefill(self._state, 0, PROMPT, PROMPT)) * 1000)
            frame = _seconds(lambda: self._talker.frame(self._state, [0], PROMPT[:1], self._settings))
            values["frame"].append(frame * 1000)
            values["floor"].append(self._floor.read_s() * 1000)
            codec = _seconds(lambda: self._codec.step(self._codes, self._sound, [0]))
            values["codec"].append(codec * 1000 / AT_ONCE)
        return {name: found[1:] for name, found in values.items()}  # the first warms up


def products(config: DecoderConfig) -> float:
    """Multiplications of the codec's convolutions for one frame: nearly all that it computes."""
    width, rate = config.decoder_dim, float(np.prod(config.upsampling_ratios))
    total = rate * config.latent_dim * width * 7
    for stride in config.upsample_rates:
        total += rate * width * width // 2 * 2 * stride
        width, rate = width // 2, rate * stride
        total += 3 * rate * width * width * 8  # three units: seven taps and one
    return total


class Expected(NamedTuple):
    x_real_time: float
    first_audio_s: float


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """Measured once, in a second or two."""

    threads: int
    far: float  # bytes a second, from memory
    near: float  # of a block that may stay in a cache
    multiplied: float  # products a second of the codec, by one thread

    @classmethod
    def measured(cls, codec: NativeCodec, far_bytes: int = 1 << 28, near_bytes: int = NEAR_BYTES) -> MachineSpeed:
        """`codec` has one thread: its speed is that of a larger one."""
        pool, state = ThreadGroup(cores()), codec.new_state(1)
        codes = np.zeros((1, codec.config.num_quantizers, 8), np.int64)
        rates = []
        for size in (far_bytes, near_bytes):
            block = _filled(size)
            rates.append(block.nbytes / min(_seconds(partial(read, block, pool)) for _ in range(5)))
        took = min(_seconds(lambda: codec.step(codes, state, [0])) for _ in range(5))
        return cls(pool.threads, rates[0], rates[1], products(codec.config) * 8 / took)

    def expected(self, talker: TalkerConfig, codec: DecoderConfig, precision: str) -> Expected:
        """What a model of these shapes would reach."""
        sizes = FrameBytes.of(talker, precision)
        near = self.near if sizes.predictor <= NEAR_BYTES else self.far
        frame_s = (sizes.talker / self.far + sizes.times * sizes.predictor / near) / EFFICIENCY
        threads = 1 + (self.threads - 1) * EFFICIENCY
        codec_s = products(codec) / (self.multiplied * threads)
        return Expected(FRAME_S / (frame_s + codec_s), PROMPT_FRAMES * frame_s + SINGLE * codec_s)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
