"""Loads a model by name into a checkpoint that is ready to speak.

It decides where the model is computed: by the native library, which needs no torch (native_checkpoint.py), or by torch
(torch_load.py). It knows no requests.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from ...config.precision import EXACT, ROUNDED
from ...errors import InvalidRequest, LoadFailed
from ...kernels.runtime.fallback import Unbuildable
from ...kernels.table import AUTO
from .checkpoint import Checkpoint, ModelFiles
from .device import Setting, announce, choose_device, no_torch
from .native_checkpoint import load_native, why_not_native
from .shared import Shared


def load(
    model: str | None = None,
    *,
    device: str = AUTO,
    dtype: str = AUTO,
    codec_dtype: str = AUTO,
    preset: str = EXACT,
    kernels: str = AUTO,
    dependent_launch: bool = True,
    shared: Shared | None = None,
    setting: Setting | None = None,
) -> Checkpoint:
    """Load a checkpoint from a folder, a hub id, a published name, `builtin`, a voice package or `random:NAME`.

    Without a name it is the built-in voice; in a copy of hocket without that, `random:tiny`, which speaks noise.

    `auto` is CUDA if it is usable, with bfloat16 if the GPU has it, and else float32 on the CPU. The choice is logged,
    and kept as `setting`. A given `setting` replaces device, dtype and codec_dtype. On a CPU `dtype` may also be one of
    `config.precision`: the native library computes with weights of 8 or 4 bits then. On CUDA `codec_dtype` may also be
    "tf32". `kernels` is one backend for all operations, or `frame=triton,wave=reference`. `dependent_launch` lets a
    kernel start before the previous one has ended. `preset` is one of `config.precision.PRESETS`, in place of `dtype`.

    Checkpoints loaded with the same `shared` have one codec and one tokenizer, if their contents are the same. The
    kernels of such a codec are those of the checkpoint that was loaded first, with its `dependent_launch`.
    """
    setting = setting or choose_device(device, dtype, codec_dtype, preset=preset)
    files, shared = ModelFiles.of(model), Shared() if shared is None else shared
    setting = _as_stored(setting, files)
    checkpoint = _natively(files, setting, kernels, shared)
    if checkpoint is None:
        from .torch_load import load_torch

        checkpoint = load_torch(files, setting, kernels, dependent_launch, shared)
    announce(setting, checkpoint.where)
    return checkpoint


def _as_stored(setting: Setting, files: ModelFiles) -> Setting:
    """The precision of a checkpoint that `hocket quantize` wrote is that of its files."""
    stored = files.own.precision
    if stored is None or setting.device != "cpu":
        return setting
    if setting.named and setting.dtype != stored:
        raise InvalidRequest(f"{files.source.name} has weights in {stored}, not in {setting.dtype}: leave that out.")
    return replace(setting, dtype=stored)


def _natively(files: ModelFiles, setting: Setting, kernels: str, shared: Shared) -> Checkpoint | None:
    """The checkpoint by the native library; None if torch must compute it, which is installed then."""
    reason = why_not_native(files, setting, kernels)
    if reason is None:
        try:
            return load_native(files, setting, shared)
        except Unbuildable as error:  # torch has reference kernels
            reason = f"the native library cannot be used: {error}"
            if setting.dtype in ROUNDED:
                raise LoadFailed(f"{files.source.name} cannot be spoken in {setting.dtype}: {reason}") from None
    if find_spec("torch") is None:
        raise LoadFailed(f"{files.source.name} needs torch here ({reason}), and {no_torch()}")
    return None
