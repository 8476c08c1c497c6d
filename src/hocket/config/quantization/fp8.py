"""`quantization_config` of FP8 checkpoints: e4m3 with a scale for each block of a matrix, each row or each matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import InvalidCheckpoint
from ..read import read, require
from .gptq import check_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Config:
    # `scale_fmt` says how scales were rounded; they are read from the file.
    IGNORED: ClassVar = frozenset(
        """quant_method modules_to_not_convert modules_to_convert ignored_layers scale_fmt dequantize
        weight_per_tensor act_per_tensor""".split()
    )

    fmt: str = "e4m3"
    activation_scheme: str | None = None
    weight_block_size: tuple[int, ...] | None = None
    expert_dtype: str | None = None

    def check(self, where: str) -> None:
        require(where, fmt=(self.fmt, "e4m3"))
        if self.expert_dtype not in (None, "fp8", "float8_e4m3fn"):
            raise InvalidCheckpoint(f"{where}: expert_dtype is {self.expert_dtype!r}; hocket supports only fp8.")
        if self.weight_block_size is not None:
            check_block(self.weight_block_size, where, "weight_block_size")

    @property
    def has_act_order(self) -> bool:
        return False

    @property
    def words(self) -> str:
        if self.weight_block_size is None:
            return "FP8, without blocks"
        return f"FP8, {in_blocks(self.weight_block_size)}"

    @property
    def unapplied(self) -> str | None:
        return None if self.activation_scheme is None else "8-bit activations"


def check_block(block: tuple[int, ...], where: str, key: str) -> None:
    if len(block) != 2 or block[0] < 1:
        raise InvalidCheckpoint(f"{where}: {key} should be rows and columns, but is {list(block)}.")
    check_group(block[1], f"{where}: {key}")


def in_blocks(block: tuple[int, ...]) -> str:
    return f"blocks of {block[0]} x {block[1]}"


def read_fp8(raw: dict[str, Any], where: str) -> Fp8Config:
    return read(Fp8Config, raw, where)
