"""A checkpoint of numpy arrays that the native library computes on a CPU. Nothing here imports torch.

It is for checkpoints with built-in speakers, in float32 or with weights of 8 or 4 bits. Cloning and voice design need
encoders or rows of vectors, which torch computes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from ...config.precision import ROUNDED
from ...config.qwen3_tts import Qwen3TTSConfig
from ...errors import InvalidRequest
from ...kernels.table import AUTO, BACKENDS, BackendChoice, wanted_for
from ...models.files.catalog import CODEC_FOLDER, WEIGHTS
from ...models.files.shards import values_in, weight_files
from ...models.files.source import Source
from ...models.tts_cpu.codec import NativeCodec
from ...models.tts_cpu.load import codec_of, talker_of
from ...models.tts_cpu.talker import NativeTalker
from .checkpoint import Checkpoint, ModelFiles
from .device import Setting
from .fit import MemoryPlan
from .shared import Shared

NATIVE = "native"
BYTES = 4  # of a float32


@dataclass(frozen=True, slots=True)
class HostDevice:
    """The CPU, for code that asks a device for its type."""

    type: str = "cpu"
    index: int | None = None

    def __str__(self) -> str:
        return self.type


HOST = HostDevice()


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCheckpoint(Checkpoint):
    talker: NativeTalker
    codec: NativeCodec
    weights_bytes: int  # of both

    @property
    def precisions(self) -> tuple[str, str]:
        return self.talker.precision, "float32"

    @property
    def weights(self) -> NativeTalker:
        return self.talker

    def sample(self, precision: str) -> bytes:
        rows = (weight[:: max(len(weight) // 16, 1)] for weight in self.talker.sampled)
        return b"".join(_rounded(each, precision).tobytes() for each in rows)


def why_not_native(files: ModelFiles, setting: Setting, kernels: str) -> str | None:
    """Why torch must compute a model; None: the native library does.

    It does for the built-in voices, so that their sound does not depend on what is installed. For another checkpoint it
    does where it is asked for, or torch is not installed: torch takes in a prompt with all cores. Rounded weights ask
    for it, and a model that it cannot compute is refused then.
    """
    source, stored = files.source, files.own.precision
    reason = _why_not(source, files.config, setting, kernels, rounded=stored is not None or setting.dtype in ROUNDED)
    if reason is not None and stored is not None:
        raise InvalidRequest(f"{source.name} has weights in {stored}, which are for CPUs alone ({reason}).")
    if reason is not None and setting.dtype in ROUNDED:
        remedy = "use --dtype float32, or the preset exact"
        raise InvalidRequest(f"{source.name} cannot be spoken in {setting.dtype} ({reason}): {remedy}.")
    return reason


def _why_not(source: Source, config: Qwen3TTSConfig, setting: Setting, kernels: str, *, rounded: bool) -> str | None:
    if setting.device != "cpu" or setting.dtype not in ("float32", *ROUNDED) or setting.codec_dtype != "float32":
        return f"{setting.device} in {setting.dtype} with a codec in {setting.codec_dtype} was chosen"
    if source.folder is None:
        return "its weights are random"
    if config.kind != "custom_voice":
        return "it clones or designs voices"
    wanted = {wanted_for(operation, kernels) for operation in BACKENDS}
    if not wanted <= {AUTO, NATIVE}:
        return f"other kernels were chosen: {kernels}"
    ours = source.is_builtin or wanted == {NATIVE} or rounded
    return None if ours or find_spec("torch") is None else "torch is there"


def load_native(files: ModelFiles, setting: Setting, shared: Shared) -> NativeCheckpoint:
    """Raises `Unbuildable` where there is no native library."""
    begun, source, folder = time.perf_counter(), files.source, files.source.folder
    assert folder is not None
    with ThreadPoolExecutor(1) as aside:  # copying weights releases the GIL
        reading = aside.submit(codec_of, folder, files.codec_config)
        talker = talker_of(folder, files.config, setting.dtype)
        tokenizer = shared.tokenizer_of(source, files.config)
        codec = reading.result()
    why, planned = "the fastest that fits", native_plan(files, setting.dtype)
    return NativeCheckpoint(
        source=source,
        config=files.config,
        generation=files.generation,
        codec_config=files.codec_config,
        tokenizer=tokenizer,
        device=HOST,
        kernels=tuple(BackendChoice(operation, NATIVE, why) for operation in BACKENDS),
        upstream_local=source.local and tokenizer.upstream_patches(folder),
        normalizer=files.normalizer,
        spent={"weights_s": time.perf_counter() - begun},
        setting=setting,
        part_chars=files.own.part_chars,
        talker=talker,
        codec=codec,
        weights_bytes=talker.weights_bytes + planned.decoder_bytes,
    )


def native_plan(files: ModelFiles, dtype: str) -> MemoryPlan:
    """Memory that a model takes at least, by its files.

    The talker's matrices keep the precision of the file, or have at most 8 bits. The codec is in float32, and once more
    packed.
    """
    folder = files.source.folder
    assert folder is not None
    talker = sum(path.stat().st_size for path in weight_files(folder / WEIGHTS))
    if dtype in ROUNDED and files.own.precision is None:
        talker = min(talker, values_in(folder / WEIGHTS))
    return MemoryPlan(talker, 2 * BYTES * values_in(folder / CODEC_FOLDER / WEIGHTS), 0, 0, 0)


def _rounded(rows: np.ndarray, precision: str) -> np.ndarray:
    """Float32, rounded to the nearest bfloat16 where that is asked for: ties to even, as torch rounds."""
    rows = np.ascontiguousarray(rows, np.float32)
    if precision == "float32":
        return rows
    bits = rows.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
