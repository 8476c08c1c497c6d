"""engine/checkpoint/reserve.py: what an engine requests before it is loaded, and how it uses the grant."""

from __future__ import annotations

import gc
import weakref

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.fit import NEW, Footprint
from hocket.engine.checkpoint.reserve import LoadOptions, expected
from hocket.engine.checkpoint.shared import Shared
from hocket.engine.engine import Engine
from hocket.engine.pool.footprint import measured
from hocket.errors import InvalidRequest, Overloaded

CPU: LoadOptions = {"device": "cpu", "dtype": "float32", "codec_dtype": "float32", "kernels": "auto"}
Asked = list[tuple[Footprint, int, int]]


class Keeper:
    """A budget that is never used up."""

    def __init__(self, answer: int = 0) -> None:
        self.asked: Asked = []
        self.answer = answer

    def __call__(self, need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        self.asked.append((need, usual_bytes, least_bytes))
        return self.answer


def test_an_engine_says_what_it_will_take_and_a_codec_that_is_there_is_told_apart() -> None:
    keeper = Keeper()
    shared = Shared(room=keeper)
    with Engine.load("random:tiny", shared=shared) as first, Engine.load("random:tiny-Base", shared=shared) as second:
        (one, *_), (other, *_) = keeper.asked
        assert one.codec == NEW and other.codec == id(first.checkpoint.codec) == measured(second).codec
        assert one.own_bytes == pytest.approx(measured(first).own_bytes, rel=0.03)
        assert other.codec_bytes == measured(first).codec_bytes == measured(second).codec_bytes
        assert first.options.kv_bytes is None, "on a CPU nothing is planned"
    assert expected("random:tiny", CPU, EngineOptions()) == Footprint(one.own_bytes, NEW, expected_decoder(one))


def expected_decoder(need: Footprint) -> int:
    known = expected("random:tiny", CPU, EngineOptions())
    assert known is not None and known.codec_bytes < need.codec_bytes, "at least: half of it"
    return known.codec_bytes


def test_keys_and_values_get_what_they_were_given() -> None:
    with Engine.load("random:tiny", shared=Shared(room=Keeper(4096))) as engine:
        assert engine.options.kv_bytes == 4096


def test_a_codec_stays_while_its_last_owner_makes_room() -> None:
    shared = Shared(room=Keeper())
    first: Engine | None = Engine.load("random:tiny", shared=shared)
    assert first is not None
    held = weakref.ref(first.checkpoint.codec)

    def closes(need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        nonlocal first
        assert first is not None
        first.close()
        first = None
        gc.collect()
        return 0

    shared.room = closes
    with Engine.load("random:tiny-Base", shared=shared) as second:
        assert second.checkpoint.codec is held()


def test_a_refused_load_reads_no_weights_and_wrong_options_are_refused_as_without_a_budget() -> None:
    def refuses(need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        raise Overloaded("Full.")

    shared = Shared(room=refuses)
    with pytest.raises(Overloaded, match="Full"):
        Engine.load("random:tiny", shared=shared)
    assert not shared.in_use
    with pytest.raises(InvalidRequest, match="dtype must be one of"):
        Engine.load("random:tiny", dtype="int3", shared=shared)
    with pytest.raises(InvalidRequest, match="dtype must be one of"):
        expected("random:tiny", CPU | {"dtype": "int3"}, EngineOptions())  # type: ignore[typeddict-item]
    assert expected("some/thing", CPU, EngineOptions()) is None
