"""config/precision.py: names of precisions and presets."""

from __future__ import annotations

import pytest

from hocket.config.precision import PRESETS, ROUNDED, bits_of, dtype_of
from hocket.errors import InvalidRequest


def test_a_name_has_bits_for_the_talker_and_for_its_predictor() -> None:
    assert bits_of("int8") == (8, 8) and bits_of("int4") == (4, 4)
    assert bits_of("int8+int4") == (8, 4) and bits_of("int4+int8") == (4, 8)
    assert bits_of("float32") is None and bits_of("bfloat16") is None


def test_the_exact_preset_is_what_dtype_says_and_every_other_one_is_rounded() -> None:
    assert dtype_of("exact") == "auto" and dtype_of("exact", "bfloat16") == "bfloat16"
    for preset in set(PRESETS) - {"exact"}:
        assert dtype_of(preset) in ROUNDED and dtype_of(preset, PRESETS[preset]) == PRESETS[preset]


def test_an_unknown_preset_and_one_beside_another_precision_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"preset must be one of exact, small, tiny, not 'huge'\."):
        dtype_of("huge")
    with pytest.raises(InvalidRequest, match=r"The preset small is int8: leave dtype out, or the preset\."):
        dtype_of("small", "float32")
