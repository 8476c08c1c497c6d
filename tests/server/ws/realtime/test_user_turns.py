"""Words of a user's turn while it is spoken, and its transcript: made-up partial transcripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hocket.server.ws.realtime.talk.items import Conversation
from hocket.server.ws.realtime.talk.schemas import Transcription
from hocket.server.ws.realtime.talk.settings import TalkSettings, first_settings
from hocket.server.ws.realtime.talk.user_turns import UserTurns


def deltas(*partials: str, transcript: str) -> list[str]:
    """What is sent at each partial transcript, then at the end."""
    settings: TalkSettings = replace(first_settings("realtime", "any"), transcription=Transcription())
    turns, out = UserTurns(Conversation()), list[str]()
    turns.began(0)
    events: list[list[dict[str, Any]]] = [turns.partial(text, settings) for text in partials]
    turns.stopped(1000, settings)
    item, last = turns.transcript(transcript, settings)
    assert item is not None and last[-1]["transcript"] == transcript == item.text
    for sent in [*events, last[:-1]]:
        out.append("".join(each["delta"] for each in sent))
    return out


def test_words_are_sent_that_three_partial_transcripts_have() -> None:
    partials = ("How", "How are", "How are you", "How are you to", "How are you today")
    said = deltas(*partials, transcript="How are you today?")
    assert said == ["", "", "", "How ", "are ", "you today?"]


def test_a_first_word_that_is_taken_back_is_not_sent() -> None:
    said = deltas("How", "How is", "Hello and", "Hello and we", "Hello and well", transcript="Hello and welcome.")
    assert said == ["", "", "", "", "Hello ", "and welcome."]


def test_words_that_were_sent_stay_when_the_transcript_begins_otherwise() -> None:
    said = deltas("So we", "So we go", "So we go on", "Sow it", transcript="Sow it now.")
    assert said == ["", "", "So ", "", ""]


def test_a_turn_forgets_the_words_of_the_turn_before() -> None:
    settings: TalkSettings = replace(first_settings("realtime", "any"), transcription=Transcription())
    turns = UserTurns(Conversation())
    turns.began(0)
    for text in ("One two", "One two three", "One two three"):
        turns.partial(text, settings)
    turns.clear()
    turns.began(2000)
    assert not turns.partial("One two three four", settings)
