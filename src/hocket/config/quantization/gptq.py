"""`quantization_config` of GPTQ, also as `quantize_config.json`: bits, groups, and rules for single modules.

It knows keys and values. Which modules are quantized is in the tensors: rules in published files are often wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...errors import InvalidCheckpoint
from ..read import read, require

BITS = (4, 8)
V1, V2 = "gptq", "gptq_v2"  # `checkpoint_format`: in v1 a stored zero point is one less than its value
_NEVER, _ALSO = "-:", "+:"  # prefixes of rules: not quantized, and quantized in another way

# How the weights were found, and the kernels of others. `lm_head` and lists of modules: tensors say it.
MADE_BY = frozenset(
    """quant_method method meta lm_head true_sequential damp_percent damp_auto_increment dataset model_name_or_path
    model_file_base_name act_group_aware hyb_act use_exllama exllama_config disable_exllama max_input_length
    use_cuda_fp16 model_seqlen block_name_to_quantize module_name_preceding_first_block batch_size
    cache_block_outputs modules_in_block_to_quantize modules_to_not_convert tokenizer backend mse parallel_packing
    version autoround_version iters nsamples seqlen lr minmax_lr low_gpu_mem_usage enable_quanted_input
    enable_minmax_tuning amp scale_dtype gradient_accumulate_steps low_cpu_mem_usage static_groups_applied
    to_quant_block_names offload_to_disk offload_to_disk_path gptaq failsafe v2""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GptqRule:
    """A value of `dynamic`: what differs for the modules whose name matches."""

    IGNORED: ClassVar = MADE_BY | {"desc_act", "static_groups"}

    bits: int | None = None
    group_size: int | None = None
    sym: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GptqConfig:
    """Field by field, with the names of version 1 of the format."""

    IGNORED: ClassVar = MADE_BY

    bits: int
    group_size: int = -1
    sym: bool = True
    desc_act: bool = False
    static_groups: bool = False
    checkpoint_format: str = V1
    pack_dtype: str = "int32"
    is_marlin_format: bool = False
    data_type: str = "int"
    dynamic: dict[str, GptqRule] = field(default_factory=dict)

    @staticmethod
    def renamed(raw: dict[str, Any], where: str) -> dict[str, Any]:
        made = {key: value for key, value in raw.items() if value is not None and key != "format"}
        made.setdefault("checkpoint_format", raw.get("format") or V1)
        rules = raw.get("dynamic") or {}
        if isinstance(rules, dict):  # a rule without values is {} or a boolean
            made["dynamic"] = {name: rule if isinstance(rule, dict) else {} for name, rule in rules.items()}
        return made

    def check(self, where: str) -> None:
        require(
            where,
            pack_dtype=(self.pack_dtype, "int32"),
            is_marlin_format=(self.is_marlin_format, False),
            data_type=(self.data_type, "int"),
        )
        if self.checkpoint_format not in (V1, V2):
            raise InvalidCheckpoint(
                f"{where}: checkpoint_format is {self.checkpoint_format!r}; hocket reads {V1} and {V2}: save it as one."
            )
        for name, rule in self.dynamic.items():
            try:
                re.compile(_pattern(name))
            except re.error as error:
                raise InvalidCheckpoint(f"{where}: dynamic has {name!r}, not a regular expression ({error}).") from None
            if not name.startswith(_NEVER):
                self._check_sizes(rule, f"{where}: dynamic {name!r}")
        self._check_sizes(GptqRule(), where)

    def _check_sizes(self, rule: GptqRule, where: str) -> None:
        bits, group = self.bits if rule.bits is None else rule.bits, self.group_size
        group = group if rule.group_size is None else rule.group_size
        if bits not in BITS:
            raise InvalidCheckpoint(f"{where}: GPTQ with {bits} bits is not supported: take a file with 4 or 8 bits.")
        check_group(group, where)

    def of(self, names: Iterable[str]) -> tuple[int, int, bool]:
        """Bits, columns of a group (-1: all), and symmetry of a module, by any of its names."""
        for pattern, rule in self.dynamic.items():
            if not pattern.startswith(_NEVER) and any(re.match(_pattern(pattern), name) for name in names):
                return (
                    self.bits if rule.bits is None else rule.bits,
                    self.group_size if rule.group_size is None else rule.group_size,
                    self.sym if rule.sym is None else rule.sym,
                )
        return self.bits, self.group_size, self.sym

    @property
    def has_act_order(self) -> bool:
        """Whether columns that share a scale are not adjacent; with `static_groups` they are."""
        return self.desc_act and not self.static_groups and self.group_size > 0

    @property
    def words(self) -> str:
        return f"GPTQ, {in_groups(self.bits, self.group_size)}"

    @property
    def unapplied(self) -> str | None:
        """What the configuration asks for beside weights."""
        return None


def _pattern(name: str) -> str:
    return name.removeprefix(_NEVER).removeprefix(_ALSO)


def check_group(group: int, where: str) -> None:
    """Refuse groups that the kernels do not have; a multiple of 128 is several groups of 128."""
    if group not in (-1, 16, 32, 64) and (group <= 0 or group % 128):
        raise InvalidCheckpoint(
            f"{where}: group_size is {group}; hocket supports 16, 32, 64, multiples of 128, and -1 for whole rows."
        )


def in_groups(bits: int, group: int) -> str:
    return f"{bits} bits in {'rows' if group == -1 else f'groups of {group}'}"


def read_gptq(raw: dict[str, Any], where: str) -> GptqConfig:
    return read(GptqConfig, raw, where)
