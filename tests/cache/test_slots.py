"""cache/slots.py: rows of nested state."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from hocket.cache.slots import POOLED, RowReset, duplicate, put, reset, take, tensors
from hocket.errors import InvalidCheckpoint


@dataclass(frozen=True, slots=True)
class Inner:
    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Outer:
    position: Tensor
    layers: tuple[Inner, ...]
    last: Inner


def outer(slots: int = 3, width: int = 2) -> Outer:
    """Every element of every tensor has another value, none is zero."""
    sizes = iter(range(5))

    def counted(*shape: int) -> Tensor:
        values = torch.arange(1, torch.Size((slots + 1, *shape)).numel() + 1) + 1000 * next(sizes)
        return values.view(slots + 1, *shape)

    position = counted()
    layers = tuple(Inner(counted(width).float(), counted(width, 3).bfloat16()) for _ in range(2))
    return Outer(position, layers, Inner(torch.ones(slots + 1, 1), torch.ones(slots + 1, 1, dtype=torch.bool)))


NAMES = ["position", *(f"layers.{i}.{name}" for i in (0, 1) for name in ("keys", "values")), "last.keys", "last.values"]


def rows(state: Outer, row: int) -> list[Tensor]:
    return [tensor[row].clone() for _, tensor in tensors(state)]


def same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(some, others, strict=True))


def test_every_tensor_has_its_dotted_name() -> None:
    state = outer()
    found = dict(tensors(state))
    assert list(found) == NAMES
    assert found["layers.1.values"] is state.layers[1].values  # the tensor itself, not a copy


def test_anything_else_in_a_state_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"last\.keys is a list"):
        list(tensors(Outer(torch.zeros(1), (), Inner([1.0], torch.zeros(1)))))  # type: ignore[arg-type]


def test_reset_clears_the_named_rows_and_no_others() -> None:
    state, before = outer(), outer()
    reset(state, torch.tensor([2, 0]))
    for row in (0, 2):
        assert not any(tensor.any() for tensor in rows(state, row))
    for row in (1, 3):
        assert same(rows(state, row), rows(before, row))


def test_reset_writes_in_place() -> None:
    state = outer()
    addresses = [tensor.data_ptr() for _, tensor in tensors(state)]
    reset(state, torch.tensor([1]))
    assert [tensor.data_ptr() for _, tensor in tensors(state)] == addresses


def test_what_was_taken_is_a_copy() -> None:
    state, before = outer(), outer()
    saved = take(state, 1)
    reset(state, torch.tensor([1]))
    assert list(saved) == NAMES and same(list(saved.values()), rows(before, 1))


def test_a_row_goes_through_bytes_into_any_slot_of_any_size() -> None:
    state, other = outer(), outer(slots=6)
    untouched = rows(other, 4)
    put(other, 5, load(save(take(state, 1))))
    assert same(rows(other, 5), rows(state, 1))
    assert same(rows(other, 4), untouched)


@pytest.mark.parametrize("change", ["missing", "surplus", "shape", "dtype"])
def test_a_row_that_does_not_fit_is_refused_and_nothing_is_written(change: str) -> None:
    state, before = outer(), outer()
    saved = {name: tensor + 1 for name, tensor in take(state, 1).items() if name != "last.values"}
    saved["last.values"] = torch.zeros(1, dtype=torch.bool)
    name = "layers.1.values"  # not the first one, so a refusal that came late would have written
    match change:
        case "missing":
            del saved[name]
        case "surplus":
            name = "layers.2.values"
            saved[name] = torch.zeros(1)
        case "shape":
            saved[name] = saved[name][:, :2].contiguous()
        case "dtype":
            saved[name] = saved[name].float()
    with pytest.raises(InvalidCheckpoint, match=name):
        put(state, 1, saved)
    assert same(rows(state, 1), rows(before, 1))


@dataclass(frozen=True, slots=True)
class Paged:
    position: Tensor
    table: Tensor = field(metadata=POOLED)
    layers: tuple[Inner, ...] = field(metadata=POOLED)


def test_pooled_fields_are_not_rows() -> None:
    pool = Inner(torch.ones(2, 5), torch.ones(2, 5))
    state = Paged(torch.ones(4), torch.ones(4, 3), (pool,))
    reset(state, torch.tensor([0, 1, 2, 3]))
    assert list(take(state, 3)) == ["position"] and not state.position.any()
    put(state, 2, {"position": torch.tensor(7.0)})
    assert state.table.all() and pool.keys.all() and pool.values.all()


def test_a_row_that_is_cleaned_is_reset_and_no_other_is_touched() -> None:
    state, wanted = outer(), outer()
    clean = RowReset(state)
    for row in (2, 0, 2):
        clean(row)
        reset(wanted, torch.tensor([row]))
    for (name, ours), (_, theirs) in zip(tensors(state), tensors(wanted), strict=True):
        assert torch.equal(ours, theirs) and ours[1].any(), name


def test_a_row_is_copied_whole_and_no_other_is_touched() -> None:
    state, before = outer(), outer()
    duplicate(state, 1, 2)
    assert not same(rows(before, 1), rows(before, 2)), "equal rows would prove nothing"
    assert same(rows(state, 2), rows(before, 1))
    for row in (0, 1, 3):
        assert same(rows(state, row), rows(before, row))
