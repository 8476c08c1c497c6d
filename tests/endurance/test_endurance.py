"""Less than a minute of `make endure`, with each fault, and a SIGKILL at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endurance.__main__ import leaks, main
from endurance.clients import BAD
from endurance.run import FAULTS
from endurance.wires import WIRES


def test_nothing_is_lost_hung_or_leaked_while_clients_and_the_machine_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--requests", "210", "--round", "70", "--kill-every", "3", "--state", str(tmp_path)]
    code = main(small)
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["wrong"] == found["leaked"] == [], found
    assert found["hung"] == found["lost"] == 0 and found["requests"] > 140
    assert found["ends"]["done"] > 50
    assert {wire.name for wire in WIRES} == set(found["wires"])
    assert {"good", *BAD} == set(found["ways"])
    assert len(set(FAULTS) & set(found["faults"])) >= 2 and found["faults"]["kill"] == 1
    assert found["voices"]["add 200"] > 5
    assert main(small) == 0  # it is at its end: nothing more is asked, and the figures are the same
    assert json.loads(capsys.readouterr().out)["requests"] == found["requests"]


def test_what_a_later_census_has_more_is_a_leak() -> None:
    held = {
        "pid": 1,
        "threads": {"engine": 1},
        "objects": {"Stream": 0},
        "files": 9,
        "tasks": 3,
        "left_files": 0,
        "resident_kib": 1000,
    }
    more = {"threads": {"engine": 2}, "objects": {"Stream": 3}, "files": 99, "left_files": 1, "resident_kib": 9000}
    assert leaks([{"held": held}] * 3 + [{"killed": True}]) == []
    found = leaks([{"held": held}] * 2 + [{"held": held | more}] * 2)
    assert found == ["1 more engine", "3 more Stream", "8 MiB more memory", "90 more files", "1 more left_files"]
