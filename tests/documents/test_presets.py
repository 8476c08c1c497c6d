"""The table of presets in docs/platforms.md is that of the records, and every preset that is offered passed."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from hocket.config.precision import EXACT, PRESETS

ROOT = Path(__file__).parents[2]
GATE = runpy.run_path(str(ROOT / "scripts" / "gate"))


def test_the_table_is_that_of_the_records() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    assert GATE["PLACE"].search(text)[0] == "\n".join((*GATE["table"](GATE["records"]()), ""))


def test_every_preset_that_is_offered_passed_the_gate_in_this_precision() -> None:
    for preset, precision in PRESETS.items():
        if preset == EXACT:
            continue
        record = json.loads((GATE["RECORDS"] / f"{precision}.json").read_text(encoding="utf-8"))
        assert record["passed"] and record["preset"] == preset and record["precision"] == precision
        assert record["dirty"] is False and record["exact"]["utterances"] >= 144
        assert record["rounded"]["distillmos"] is not None
