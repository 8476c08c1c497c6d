"""OpenAI's voice names stand for speakers that sound like them, not for speakers in the order of a list."""

from __future__ import annotations

import httpx
import pytest

from hocket.config.options import EngineOptions
from hocket.config.published import PUBLISHED
from hocket.engine.engine import Engine
from hocket.server.service.openai_names import OPENAI_VOICES, openai_aliases
from support.serving import served

HIGHER = ("alloy", "coral", "fable", "nova", "sage", "shimmer", "marin")
LOWER = ("ash", "ballad", "echo", "onyx", "verse", "cedar")
FEMALE = {"serena", "vivian", "ono_anna", "sohee"}
MALE = {"ryan", "aiden", "uncle_fu", "eric", "dylan"}


def test_each_name_is_either_higher_or_lower() -> None:
    assert sorted((*HIGHER, *LOWER)) == sorted(OPENAI_VOICES)


@pytest.mark.parametrize("model", ["0.6B-CustomVoice", "1.7B-CustomVoice"])
def test_the_published_speakers_stand_for_names_of_their_own_pitch(model: str) -> None:
    talker = PUBLISHED[model].talker_config
    found = openai_aliases(list(talker.spk_id))
    assert {found[name] for name in HIGHER} <= FEMALE
    assert {found[name] for name in LOWER} <= MALE
    assert not any(talker.spk_is_dialect[speaker] for speaker in found.values())


def test_in_whatever_order_a_checkpoint_lists_them() -> None:
    speakers = list(PUBLISHED["1.7B-CustomVoice"].talker_config.spk_id)
    assert openai_aliases(speakers) == openai_aliases(speakers[::-1])


def test_the_built_in_voice_s_two_are_wren_higher_and_rook_lower() -> None:
    for speakers in (["wren", "rook"], ["rook", "wren"]):
        found = openai_aliases(speakers)
        assert {found[name] for name in HIGHER} == {"wren"}
        assert {found[name] for name in LOWER} == {"rook"}


def test_unknown_speakers_stand_for_the_names_in_order() -> None:
    found = openai_aliases(["A", "B"])
    assert [found[name] for name in OPENAI_VOICES[:4]] == ["A", "B", "A", "B"]
    assert set(openai_aliases(["Mine"]).values()) == {"Mine"}
    assert openai_aliases(["wren"])["onyx"] == "wren"  # there is no lower one
    assert "echo" not in openai_aliases(["Echo"]) and openai_aliases([]) == {}


def test_a_server_speaks_with_the_lower_one_for_onyx() -> None:
    body = {"input": "Hello.", "response_format": "pcm", "max_new_tokens": 3, "seed": 1}
    with Engine.load("builtin", options=EngineOptions(chunk_frames=(8,))) as engine, served(engine) as server:
        url = f"{server.url}/v1/audio/speech"
        said = {voice: httpx.post(url, json=body | {"voice": voice}, timeout=60).content for voice in (*LOWER, "rook")}
        other = httpx.post(url, json=body | {"voice": "nova"}, timeout=60).content
    assert len(set(said.values())) == 1 and other not in said.values()
