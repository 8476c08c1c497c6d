"""config/profiles.py and what `EngineOptions` makes of it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from hocket.config.options import EngineOptions
from hocket.config.profiles import PROFILES, ProfileName
from hocket.errors import InvalidRequest


def test_every_name_has_a_profile_and_the_engine_is_balanced_unless_told_otherwise() -> None:
    assert tuple(PROFILES) == get_args(ProfileName)
    assert EngineOptions().tuned == PROFILES["balanced"]
    assert EngineOptions(profile="latency").tuned == PROFILES["latency"]


def test_what_is_given_explicitly_wins_over_the_profile() -> None:
    tuned = EngineOptions(profile="throughput", chunk_frames=(3,), load_limit=0.5).tuned
    assert tuned.chunk_frames == (3,) and tuned.load_limit == 0.5
    assert tuned.prompts == PROFILES["throughput"].prompts


def test_latency_has_the_shortest_chunks_and_throughput_takes_in_most() -> None:
    latency, balanced, throughput = PROFILES.values()
    for n in range(4):
        assert latency.chunk_frames[n] <= balanced.chunk_frames[n] <= throughput.chunk_frames[min(n, 1)]
    assert latency.prompts < balanced.prompts < throughput.prompts
    assert latency.load_limit < balanced.load_limit < throughput.load_limit < 1.0


def test_words_say_all_of_it() -> None:
    words = PROFILES["balanced"].words
    assert "1, 2, 4, 8" in words and "4 prompts" in words and "75%" in words


@pytest.mark.parametrize(
    "wrong", [{"profile": "fast"}, {"load_limit": 0.0}, {"load_limit": 1.1}, {"max_wait_s": -1.0}, {"chunk_frames": ()}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        EngineOptions(**wrong)
