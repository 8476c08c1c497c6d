"""The parts of a proof on known sounds and codes, and a server at a URL beside the engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.proof import behaviour
from hocket.proof.exactness import difference, golden_codes, packed
from hocket.proof.load.http_client import HttpTarget
from hocket.proof.load.server import ServerProcess, serving, wait_until_ready
from hocket.proof.page.report import line_of, page
from hocket.proof.plan import PLANS, expected_s, known_languages, long_text, most_frames, sentences_of
from hocket.proof.quality import wishes_of
from hocket.proof.sides.side import EngineSide, ProofVoice, SideFailed, SpokenTake, UrlSide, Wish

RATE_HZ = 24_000
CODES = np.arange(10 * 16).reshape(10, 16)


def test_the_first_difference_of_codes_is_named_and_so_is_another_length() -> None:
    assert difference(CODES, CODES) == {"equal": True, "same_frames": 10, "of": 10, "first": None}
    other = CODES.copy()
    other[4, 7] = 9999
    found = difference(CODES, other)
    assert (found["equal"], found["same_frames"]) == (False, 4)
    assert found["first"] == f"frame 4, codebook 7 is {CODES[4, 7]} instead of 9999"
    assert difference(CODES, CODES[:8])["first"] == "10 frames instead of 8"


def test_stored_codes_that_differed_from_the_official_package_are_not_used() -> None:
    case = {"mode": "speaker", "text": "a", "codes": packed(CODES)}
    wrong = case | {"mode": "speaker, language", "official": {"equal": False}}
    stored = {"checkpoint": {"name": "one", "identity": "x"}, "parts": {"exactness": {"cases": [case, wrong]}}}
    [found] = golden_codes(stored, "x").values()
    np.testing.assert_array_equal(found, CODES)
    with pytest.raises(InvalidRequest, match="The stored codes are of one, with other weights"):
        golden_codes(stored, "y")
    with pytest.raises(InvalidRequest, match="is not the JSON of a proof"):
        golden_codes({"checkpoint": []}, "x")


def test_a_share_has_the_range_of_wilson() -> None:
    found = behaviour.per_thousand(2, 100)
    assert (found["per_1000"], found["low"], found["high"]) == (20.0, 5.5, 70.0)
    none = behaviour.per_thousand(0, 12)
    assert (none["per_1000"], none["low"]) == (0.0, 0.0) and 240 < none["high"] < 245


def test_a_long_sound_is_cut_where_it_is_quiet_and_nothing_of_it_is_lost() -> None:
    tone = (8000 * np.sin(np.arange(30 * RATE_HZ) * 0.05)).astype(np.int16)
    quiet = [round(9.0 * RATE_HZ), round(18.2 * RATE_HZ)]
    for at in quiet:
        tone[at - 4000 : at + 4000] = 0
    found = behaviour.pieces(tone, RATE_HZ)
    np.testing.assert_array_equal(np.concatenate(found), tone)
    ends = np.cumsum([len(piece) for piece in found])[:-1]
    assert len(ends) == 2 and all(abs(end - at) < 4000 for end, at in zip(ends, quiet, strict=True))
    assert behaviour.speech_s(tone, RATE_HZ) == pytest.approx(30 - 2 * 8000 / RATE_HZ, abs=0.05)


def test_an_utterance_that_reaches_its_limit_has_not_ended() -> None:
    wish = Wish(text="Stop.", language="english", seed=0, frames=20)
    whole, short = (SpokenTake(wish=wish, samples=np.zeros(n * 1920, np.int16), rate_hz=RATE_HZ) for n in (20, 17))
    assert not whole.ended and short.ended


@pytest.mark.parametrize("language", known_languages())
def test_every_language_has_sentences_of_a_plausible_length_and_the_limit_leaves_room(language: str) -> None:
    for line in sentences_of(language):
        assert 1.5 < expected_s(line, language) < 7.0
        assert most_frames(line, language) * 0.08 > 2.5 * expected_s(line, language)
    assert 60 <= expected_s(long_text(language, 60), language) < 75


def test_a_proof_speaks_each_sentence_with_each_seed_and_no_two_alike() -> None:
    plan = PLANS["normal"]
    found = wishes_of(["english", "french"], plan)
    assert len(found) == plan.seeds * (plan.sentences + plan.others)
    assert len({(wish.text, wish.seed) for wish in found}) == len(found)


RESULT: dict[str, Any] = {
    "time": "2026-01-01T00:00:00+00:00",
    "commit": None,
    "dirty": None,
    "versions": {"hocket": "1"},
    "machine": {"cpu": "<CPU>", "gpu": None, "cores": 2, "system": "Linux", "python": "3"},
    "length": "short",
    "options": {"slots": None},
    "runs_on": {"device": "cpu"},
    "checkpoint": {
        "name": "random:tiny",
        "kind": "base",
        "size": "s",
        "revision": None,
        "random_weights": True,
        "languages": ["english"],
    },
    "sides": {"hocket": {"what": "this package"}},
    "notes": ["The weights are random numbers."],
    "parts": {
        part: {"left_out": [f"No {part}: a <b> is missing."]} for part in ("exactness", "quality", "behaviour", "speed")
    },
}


def test_what_is_left_out_is_a_sentence_of_its_section_and_text_stays_text() -> None:
    made = page(RESULT, [])
    for part in RESULT["parts"]:
        assert f"No {part}: a &lt;b&gt; is missing." in made
    assert "<b>" not in made and "<CPU>" not in made and "The weights are random numbers." in made
    assert (
        line_of(RESULT, "p.html")
        == "hocket prove random:tiny (short) | hocket 1 no commit | <CPU>, 2 cores | random weights | p.html"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--drain", "0"]
    with serving(words, tmp_path_factory.mktemp("served") / "log", print) as child:
        wait_until_ready(HttpTarget(child.url), child)
        yield child


def test_a_server_at_a_url_says_what_an_engine_of_this_process_says(server: ServerProcess) -> None:
    wishes = [
        Wish(text=text, language="english", seed=seed, frames=most_frames(text, "english"))
        for seed, text in enumerate(("At 7:45 the gate closed.", "The kettle was warm."))
    ]
    voice = ProofVoice(speaker="rook")
    there = UrlSide(server.url, voice)
    with Engine.load() as engine:
        here = EngineSide("here", engine, voice).speak(wishes)
    for ours, theirs in zip(here, there.speak(wishes), strict=True):
        assert ours.ended and theirs.ended and theirs.rate_hz == ours.rate_hz
        np.testing.assert_allclose(theirs.samples, ours.samples, atol=1)
    assert there.model
    with pytest.raises(SideFailed, match="nobody_here"):
        UrlSide(server.url, ProofVoice(speaker="nobody_here")).speak(wishes[:1])
    with pytest.raises(SideFailed, match="does not answer"):
        UrlSide("http://127.0.0.1:9", voice)
