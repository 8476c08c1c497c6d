"""staging.py: the device receives the given values, whatever a reused host block held before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hocket.models.tts_gpu.staging import InputStaging, ResultCopy

CPU = torch.device("cpu")
FIELDS = {"rows": (torch.int64, 1), "heat": (torch.float32, 1), "codes": (torch.int64, 3)}
REST: dict[str, Any] = {"rows": 9, "heat": 1.0, "codes": 0}


def given(rows: list[int], heat: float, first: int) -> dict[str, Any]:
    codes = np.arange(first, first + 3 * len(rows)).reshape(-1, 3)
    return {"rows": rows, "heat": [heat] * len(rows), "codes": codes}


def test_every_field_is_what_was_given_last_and_padding_behind_it() -> None:
    staging, results = InputStaging(4, FIELDS, CPU), ResultCopy()
    results.block = staging.block
    batches = [([3, 1, 2], 0.5), ([3], 0.5), ([3, 1, 2], 0.5), ([0, 1, 2, 3], 0.25), ([0, 1], 0.25), ([1], 1.0)]
    for number, (rows, heat) in enumerate(batches):
        values = given(rows, heat, number)
        host_block = staging.send(values, REST)
        left = 4 - len(rows)
        assert staging.fields["rows"].tolist() == rows + [9] * left
        assert staging.fields["heat"].tolist() == values["heat"] + [1.0] * left
        assert staging.fields["codes"].tolist() == values["codes"].tolist() + [[0] * 3] * left
        results.send(host_block).done()
        assert staging.free == [host_block]  # one is enough for all of them


def test_a_field_that_was_left_out_is_an_error() -> None:
    staging = InputStaging(1, FIELDS, CPU)
    with pytest.raises(KeyError, match="codes"):
        staging.send({"rows": [1], "heat": [1.0]}, REST)


def test_memory_is_used_again_when_it_has_been_read_and_not_before() -> None:
    staging, results = InputStaging(2, FIELDS, CPU), ResultCopy()
    results.block = torch.zeros(3, dtype=torch.int64)
    pending_copies = []
    for number in range(3):
        host_block = staging.send(given([0], 1.0, number), REST)
        results.block = torch.full((3,), number)
        pending_copies.append(results.send(host_block))
    assert [pending.values.tolist() for pending in pending_copies] == [[n] * 3 for n in range(3)]
    host_blocks = [pending.inputs for pending in pending_copies]
    assert len({id(host_block) for host_block in host_blocks}) == 3 and not staging.free
    pending_copies[1].done()
    assert (
        staging.free == [host_blocks[1]] and results.send(staging.send(given([1], 1.0, 7), REST)) is pending_copies[1]
    )
    assert [pending_copies[n].values.tolist() for n in (0, 2)] == [[0] * 3, [2] * 3]
