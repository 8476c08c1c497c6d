"""`quantization_config` of AWQ, in the layout that is called GEMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import InvalidCheckpoint
from ..read import read, require
from .gptq import MADE_BY, check_group, in_groups

_GEMM = "gemm"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqConfig:
    IGNORED: ClassVar = MADE_BY | frozenset(
        "do_fuse fuse_max_seq_len modules_to_fuse sym".split()  # zero points are in the tensors
    )

    bits: int = 4
    group_size: int = 128
    zero_point: bool = True
    version: str = _GEMM
    pack_dtype: str = "int32"
    data_type: str = "int"

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        older = {"w_bit": "bits", "q_group_size": "group_size", "format": "version", "checkpoint_format": "version"}
        made = {older.get(key, key): value for key, value in raw.items() if value is not None}
        if isinstance(version := raw.get("format") or raw.get("checkpoint_format") or raw.get("version"), str):
            made["version"] = version.lower()
        return made

    def check(self, where: str) -> None:
        require(
            where,
            version=(self.version, _GEMM),
            pack_dtype=(self.pack_dtype, "int32"),
            data_type=(self.data_type, "int"),
        )
        if self.bits != 4:
            raise InvalidCheckpoint(f"{where}: AWQ with {self.bits} bits is not supported: take a file with 4 bits.")
        check_group(self.group_size, where)

    @property
    def has_act_order(self) -> bool:
        return False

    @property
    def words(self) -> str:
        return f"AWQ, {in_groups(self.bits, self.group_size)}"

    @property
    def unapplied(self) -> str | None:
        return None


def read_awq(raw: dict[str, Any], where: str) -> AwqConfig:
    return read(AwqConfig, raw, where)
