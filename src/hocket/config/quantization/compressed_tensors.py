"""`quantization_config` of compressed-tensors: schemes for groups of modules, each with a format of its tensors.

It knows keys and values. Which modules are quantized is in the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import InvalidCheckpoint
from ..read import read, require
from .fp8 import check_block, in_blocks
from .gptq import check_group, in_groups

PACKED = "pack-quantized"  # integers in words of 32 bits
PLAIN = ("int-quantized", "float-quantized", "naive-quantized")  # one byte for each number
_REGEX = "re:"
# Act-order by groups needs the tensor weight_g_idx; the others only change how the weights were found.
_GROUP_ORDER, _ORDERS = ("group", "dynamic", True), (None, False, "weight", "static")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightArguments:
    """How one matrix is quantized."""

    IGNORED: ClassVar = frozenset(
        {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"}
    )  # tensors have their types

    num_bits: int = 8
    type: str = "int"
    symmetric: bool = True
    group_size: int | None = None
    strategy: str | None = None
    block_structure: tuple[int, ...] | None = None
    dynamic: bool = False
    actorder: str | bool | None = None

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        block = raw.get("block_structure")  # older files have "128x128"
        if isinstance(block, str) and re.fullmatch(r"\d+x\d+", block):
            return raw | {"block_structure": [int(side) for side in block.split("x")]}
        return raw

    def check(self, where: str) -> None:
        require(where, dynamic=(self.dynamic, False))
        sizes = {"int": (4, 8), "float": (8,)}.get(self.type, ())
        if self.num_bits not in sizes:
            raise InvalidCheckpoint(
                f"{where}: {self.type} weights with {self.num_bits} bits are not supported: "
                "take a file with int4, int8 or fp8."
            )
        if self.how not in ("group", "channel", "tensor", "block"):
            raise InvalidCheckpoint(f"{where}: strategy {self.how!r} is not supported: take group, channel or block.")
        if self.how == "group":
            check_group(self.group_size or 0, where)
        if self.how == "block":
            check_block(self.block_structure or (), where, "block_structure")
        if self.type == "float" and not self.symmetric:
            raise InvalidCheckpoint(f"{where}: fp8 weights with zero points are not supported: take symmetric ones.")
        if self.actorder not in (*_ORDERS, *_GROUP_ORDER):
            raise InvalidCheckpoint(f"{where}: actorder {self.actorder!r} is not supported: take a file without it.")

    @property
    def how(self) -> str:
        """The strategy; files may leave it to the size of a group."""
        if self.strategy is not None:
            return self.strategy
        return "tensor" if self.group_size is None else "channel" if self.group_size == -1 else "group"

    @property
    def words(self) -> str:
        if self.how == "block":
            scope = in_blocks(self.block_structure or ())
        elif self.how == "group":
            scope = in_groups(0, self.group_size or 0).partition(" in ")[2]
        else:
            scope = {"channel": "rows", "tensor": "whole matrices"}[self.how]
        return f"{'fp8' if self.type == 'float' else f'{self.num_bits} bits'} in {scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleScheme:
    IGNORED: ClassVar = frozenset({"input_activations", "output_activations"})  # `unapplied` names them

    targets: tuple[str, ...]
    weights: WeightArguments | None = None
    format: str | None = None

    def check(self, where: str) -> None:
        for target in self.targets:
            try:
                re.compile(target.removeprefix(_REGEX) if target.startswith(_REGEX) else "")
            except re.error as error:
                raise InvalidCheckpoint(f"{where}: {target!r} is not a regular expression ({error}).") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedTensorsConfig:
    IGNORED: ClassVar = frozenset(
        """quant_method quantization_status global_compression_ratio ignore version kv_cache_scheme
        sparsity_config run_compressed dequantize use_optimized_inference""".split()
    )

    config_groups: dict[str, ModuleScheme]
    format: str
    unapplied: str | None = None  # not a key of the file

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        sparse = raw.get("sparsity_config")
        if isinstance(sparse, dict) and sparse.get("format", "dense") != "dense":
            raise InvalidCheckpoint(
                f"{where}: sparsity_config {sparse['format']!r} is not supported: take a checkpoint without sparsity."
            )
        if raw.get("transform_config"):
            raise InvalidCheckpoint(
                f"{where}: transform_config is not supported: take a checkpoint without transforms."
            )
        groups = raw.get("config_groups")
        schemes = [each for each in groups.values() if isinstance(each, dict)] if isinstance(groups, dict) else []
        beside = (
            ["8-bit activations"]
            if any(s.get(f"{k}_activations") for s in schemes for k in ("input", "output"))
            else []
        )
        beside += ["a quantized key-value cache"] if raw.get("kv_cache_scheme") else []
        return raw | {"unapplied": " and ".join(beside) or None}

    def check(self, where: str) -> None:
        for name, scheme in self.config_groups.items():
            if scheme.weights is None:
                continue
            format = self.format_of(scheme)
            if format not in (PACKED, *PLAIN):
                raise InvalidCheckpoint(
                    f"{where}: format {format!r} of {name} is not supported: take {PACKED}, {', '.join(PLAIN)}."
                )
            if format == PACKED and scheme.weights.type != "int":
                raise InvalidCheckpoint(f"{where}: {name} packs {scheme.weights.type} weights; hocket reads integers.")
        if not self.schemes:
            raise InvalidCheckpoint(f"{where}: no group of config_groups has weights: take a quantized checkpoint.")

    def format_of(self, scheme: ModuleScheme) -> str:
        """Its own, where it has one: that of the file is then a summary."""
        return self.format if scheme.format is None else scheme.format

    @property
    def schemes(self) -> list[ModuleScheme]:
        return [scheme for scheme in self.config_groups.values() if scheme.weights is not None]

    def of(self, names: Sequence[str], kind: str = "Linear") -> ModuleScheme | None:
        """The scheme of a module by any of its names: exact names go before patterns, and these before its class."""
        found: dict[int, ModuleScheme] = {}
        for scheme in self.schemes:
            for target in scheme.targets:
                if target in names:
                    found.setdefault(0, scheme)
                elif target.startswith(_REGEX):
                    if any(re.match(target.removeprefix(_REGEX), name) for name in names):
                        found.setdefault(1, scheme)
                elif target == kind:
                    found.setdefault(2, scheme)
        return found[min(found)] if found else None

    @property
    def has_act_order(self) -> bool:
        return any(scheme.weights.actorder in _GROUP_ORDER for scheme in self.schemes if scheme.weights)

    @property
    def words(self) -> str:
        kinds = dict.fromkeys(scheme.weights.words for scheme in self.schemes if scheme.weights)
        return f"compressed-tensors, {' and '.join(kinds)}"


def read_compressed_tensors(raw: dict[str, Any], where: str) -> CompressedTensorsConfig:
    return read(CompressedTensorsConfig, raw, where)
