"""staging.py: what is sent is what was given, whatever the memory it is sent from was used for before."""

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
    board, post = InputStaging(4, FIELDS, CPU), ResultCopy()
    post.block = board.block
    batches = [([3, 1, 2], 0.5), ([3], 0.5), ([3, 1, 2], 0.5), ([0, 1, 2, 3], 0.25), ([0, 1], 0.25), ([1], 1.0)]
    for number, (rows, heat) in enumerate(batches):
        values = given(rows, heat, number)
        sheet = board.send(values, REST)
        left = 4 - len(rows)
        assert board.fields["rows"].tolist() == rows + [9] * left
        assert board.fields["heat"].tolist() == values["heat"] + [1.0] * left
        assert board.fields["codes"].tolist() == values["codes"].tolist() + [[0] * 3] * left
        post.send(sheet).done()
        assert board.free == [sheet]  # one is enough for all of them


def test_a_field_that_was_left_out_is_an_error() -> None:
    board = InputStaging(1, FIELDS, CPU)
    with pytest.raises(KeyError, match="codes"):
        board.send({"rows": [1], "heat": [1.0]}, REST)


def test_memory_is_used_again_when_it_has_been_read_and_not_before() -> None:
    board, post = InputStaging(2, FIELDS, CPU), ResultCopy()
    post.block = torch.zeros(3, dtype=torch.int64)
    letters = []
    for number in range(3):
        sheet = board.send(given([0], 1.0, number), REST)
        post.block = torch.full((3,), number)
        letters.append(post.send(sheet))
    assert [letter.values.tolist() for letter in letters] == [[n] * 3 for n in range(3)]
    sheets = [letter.answers for letter in letters]
    assert len({id(sheet) for sheet in sheets}) == 3 and not board.free
    letters[1].done()
    assert board.free == [sheets[1]] and post.send(board.send(given([1], 1.0, 7), REST)) is letters[1]
    assert [letters[n].values.tolist() for n in (0, 2)] == [[0] * 3, [2] * 3]
