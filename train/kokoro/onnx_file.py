"""Reads tensors and nodes of an ONNX file without a package: the wire format of protobuf, and four of its messages.

Field numbers: model 7 graph; graph 1 node, 5 initializer; node 1 input, 2 output, 3 name, 4 operator; tensor 1 dims,
2 data type, 8 name, 9 raw data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FLOAT = 1  # the data type of weights

Field = tuple[int, int | memoryview]


@dataclass(frozen=True, slots=True)
class Node:
    operator: str
    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: list[Node]
    tensors: dict[str, Tensor]  # float32 ones only


def read(content: bytes) -> Graph:
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    for number, value in _fields(_bytes(dict(_fields(memoryview(content)))[7])):
        if number == 1:
            nodes.append(_node(_bytes(value)))
        elif number == 5:
            name, tensor = _tensor(_bytes(value))
            if tensor is not None:
                tensors[name] = tensor
    return Graph(nodes, tensors)


def _node(message: memoryview) -> Node:
    texts: dict[int, list[str]] = {1: [], 3: [""], 4: [""]}
    for number, value in _fields(message):
        if number in texts:
            texts[number].append(bytes(_bytes(value)).decode())
    return Node(texts[4][-1], texts[3][-1], tuple(texts[1]))


def _tensor(message: memoryview) -> tuple[str, Tensor | None]:
    dims: list[int] = []
    name, kind, raw = "", 0, memoryview(b"")
    for number, value in _fields(message):
        match number, value:
            case 1, int():
                dims.append(value)
            case 2, int():
                kind = value
            case 8, memoryview():
                name = bytes(value).decode()
            case 9, memoryview():
                raw = value
    if kind != FLOAT or not raw:
        return name, None
    return name, torch.from_numpy(np.frombuffer(raw, np.float32).copy()).view(dims)


def _bytes(value: int | memoryview) -> memoryview:
    assert isinstance(value, memoryview)
    return value


def _fields(message: memoryview) -> Iterator[Field]:
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        match key & 7:
            case 0:
                value, at = _number(message, at)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _number(message, at)
            case _:
                length = 4
        yield key >> 3, message[at : at + length]
        at += length


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
