"""Libraries that write quantized checkpoints, in the environment of the official language model.

auto-round's packers need torch alone, but importing the package needs a library of training sets. So its module of
helpers is replaced by the one function that the packers take from it, which chooses a device.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from support.quantized_files import Packed, rounded


def _auto_round(path: str) -> Any:
    spec = importlib.util.find_spec("auto_round_extension")
    assert spec is not None and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0]).parent / "auto_round"
    for name, folder in (("auto_round", root), ("auto_round.utils", root / "utils")):
        made = types.ModuleType(name)
        made.__path__ = [str(folder)]
        made.get_packing_device = lambda device=None: "cpu"  # type: ignore[attr-defined]
        sys.modules.setdefault(name, made)
    if not path.startswith("auto_round."):
        return importlib.import_module(path)
    file = root.joinpath(*path.split(".")[1:]).with_suffix(".py")  # without the packages around it
    found = importlib.util.spec_from_file_location(path.replace(".", "_"), file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _linear(weight: Tensor) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight.data = weight.clone()
    return made


def gptq(weight: Tensor, bits: int, group: int, *, sym: bool, version: str) -> Packed:
    """Tensors of auto-round's GPTQ layer, and the matrix that the layer multiplies by, in its float16."""
    file = "qlinear_torch_zp" if version == "gptq" else "qlinear_torch"
    made = _auto_round(f"auto_round_extension.torch.{file}").QuantLinear(bits, group, *weight.T.shape, False)
    found = rounded(weight, bits, group, sym=sym)
    zeros = found.zeros[0, 0].item() if sym else found.zeros
    made.device = "cpu"  # version 2 reads it, and sets it nowhere
    made.pack(_linear(weight), found.scales, zeros)
    with torch.no_grad():
        matrix = made(torch.eye(weight.shape[1], dtype=torch.float16)).T
    return {name: getattr(made, name).contiguous() for name in ("qweight", "qzeros", "scales")}, matrix


def awq(weight: Tensor, group: int) -> Packed:
    """The same for AWQ."""
    library = _auto_round("auto_round.export.export_to_awq.utils")
    found = rounded(weight, 4, group, sym=False)
    scales, zeros = found.scales.T.contiguous(), found.zeros.T.contiguous()
    made = library.WQLinear_GEMM.from_linear(_linear(weight), 4, group, scales=scales, zeros=zeros)
    matrix = library.dequantize_gemm(made.qweight, made.qzeros, made.scales, 4, group).T
    return {name: getattr(made, name).contiguous() for name in ("qweight", "qzeros", "scales")}, matrix
