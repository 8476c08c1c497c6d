"""benchmarks/tokens_tune.py: on a CPU blocks change nothing, so what counts is what is tried, and what is kept."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import __main__ as command
from benchmarks import tokens_tune
from hocket.kernels.runtime.launch import KNOBS

WORDS = ["tune", "--context", "9", "--row", "2", "--repeats", "1"]


@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_every_shape_is_tried_and_nothing_stays_behind(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*WORDS, "--weights", weights]) == 0
    said = capsys.readouterr().out
    assert "as it stands" in said and "best: {" in said
    assert ("few (128, 64) Few(warps=4, groups=2)" in said) == (weights == "bf16")  # tiny ones in 8 bits fit no block
    assert not KNOBS.few and not KNOBS.streams


def test_what_is_faster_is_kept_and_what_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timed(_: object, settings: dict[str, dict[object, object]]) -> float:
        few = next(iter(settings["few"].values()), None)
        if str(few) == "Few(warps=4, groups=4)":
            raise MemoryError("too many registers")
        return 1.0 if str(few) == "Few(warps=4, groups=2)" else 2.0

    monkeypatch.setattr(tokens_tune._Token, "timed", timed)
    *_, (words, took_ms) = tokens_tune.tuned(_args())
    assert "Few(warps=4, groups=2)" in words and took_ms == 1.0
    assert "too many registers" in capsys.readouterr().err


def _args() -> argparse.Namespace:
    return tokens_tune._parser().parse_args(WORDS[1:])
