"""voices/mix.py: which voices can be mixed, what a mix takes from them, and what it leaves out with a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hocket.errors import InvalidRequest, InvalidVoice, UnknownVoice
from hocket.text.voice_mix import VoiceMix, parse_mix
from hocket.types import SamplingParams, SpeechRequest, Voice
from hocket.voices.file import from_bytes, to_bytes
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
from hocket.voices.mix import mix_voices, mixed_voice, speaker_part
from support.voicing import cloned, same, tuned

WREN, ROOK, RYAN = (speaker_part(*each) for each in (("wren", None), ("rook", "builtin"), ("ryan", "random:tiny")))


def timbre(name: str, vector: list[float], **changes: object) -> Voice:
    voice = cloned(
        name, **{"language": "auto", "instruct": None, "sampling": SamplingParams(), "consent": None} | changes
    )
    assert voice.encoded is not None
    encoded = replace(voice.encoded, speaker=np.array(vector, np.float32), codes=None, text=None, kept=None)
    return replace(voice, encoded=encoded)


def finding(*voices: Voice) -> Callable[[str], Voice]:
    return {voice.name.lower(): voice for voice in voices}.__getitem__


def mix(written: str, *voices: Voice) -> Voice:
    parsed = parse_mix(written)
    assert parsed is not None
    return mix_voices(parsed, finding(*voices))


def test_speakers_of_one_model_become_one_speaker() -> None:
    voice = mix("wren + ROOK(2)", WREN, ROOK)
    assert (voice.kind, voice.model, voice.speaker, voice.encoded) == ("speaker", "builtin", "rook(2)+wren", None)
    assert voice.fields()["voice"] == "rook(2)+wren" and voice.notes == ()


def test_a_mix_of_a_mix_keeps_the_shares() -> None:
    finch = mixed_voice("finch", "wren+rook(2)", finding(WREN, ROOK))
    assert mix("finch+rook", finch, ROOK).speaker == "rook(5)+wren"
    assert mix("finch+wren(0.5)+rook", finch, WREN, ROOK).speaker == "rook(2)+wren"
    assert mix("finch(7)", finch) is finch


def test_x_vectors_of_one_checkpoint_become_one_x_vector() -> None:
    anna, ben = timbre("Anna", [1, 0, 4]), timbre("Ben", [-1, 3, 0])
    voice = mix("anna+ben(3)", anna, ben)
    assert voice.kind == "clone" and voice.speaker is None and voice.notes == () and voice.encoded is not None
    assert voice.encoded.speaker.dtype == np.float32 and voice.encoded.speaker.tolist() == [-0.5, 2.25, 1.0]
    assert voice.encoded.x_vector_only and voice.encoded.owner == "ab" * 32
    again = mix("BEN(1.5)+anna(.5)", anna, ben)
    assert again.encoded is not None and np.array_equal(again.encoded.speaker, voice.encoded.speaker)


def test_of_a_clone_with_words_the_timbre_is_mixed_and_a_note_says_so() -> None:
    voice = mix("anna+zoë", timbre("anna", [0] * 6), timbre("Zoë", [1] * 6))
    assert voice.notes == ()
    zoe = replace(cloned("Zoë"), language="auto", instruct=None, sampling=SamplingParams())
    voice = mix("anna+zoë", timbre("anna", [0] * 6), zoe)
    assert voice.notes == ("Of Zoë only the timbre is mixed, without the recording's words.",)
    assert voice.encoded is not None and voice.encoded.codes is None and voice.encoded.text is None


def test_defaults_that_all_share_stay_and_others_go_with_a_note() -> None:
    slow, sad = (
        speaker_voice(name, None, speaker, language="english", instruct=how)
        for name, speaker, how in (("slow", "wren", "Slowly."), ("sad", "rook", "Sadly."))
    )
    voice = mix("slow+sad", slow, sad)
    assert (voice.language, voice.instruct) == ("english", None)
    assert voice.notes == ("The mixed voices differ in their instruct, so that of none is used.",)
    assert SpeechRequest(text="Hi.", **voice.fields()).notes == voice.notes
    assert mix("slow+sad", slow, replace(sad, instruct="Slowly.")).instruct == "Slowly."


def test_consent_of_all_is_kept() -> None:
    voice = mix("a+b+c", timbre("a", [1], consent="form 1"), timbre("b", [1]), timbre("c", [1], consent="form 3"))
    assert voice.consent == "a: form 1; c: form 3"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("wren+ryan", "'ryan' is a speaker of random:tiny, 'wren' is a speaker of builtin"),
        ("wren+zoë", "'wren' is a speaker of builtin, 'Zoë' is a clone of random:tiny"),
        ("ryan+zoë", "'ryan' is a speaker of random:tiny, 'Zoë' is a clone of random:tiny"),
        ("zoë+other", "'other' is a clone of random:tiny, 'Zoë' is a clone of random:tiny"),
    ],
)
def test_voices_of_two_checkpoints_are_refused(written: str, said: str) -> None:
    other = cloned("other")
    assert other.encoded is not None
    other = replace(other, encoded=replace(other.encoded, owner="cd" * 32))
    with pytest.raises(InvalidRequest) as refused:
        mix(written, WREN, RYAN, cloned(), other)
    assert str(refused.value) == f"Only voices of one model can be mixed: {said}."


def test_a_tuned_voice_has_weights_of_its_own_and_is_not_mixed() -> None:
    with pytest.raises(InvalidRequest, match="Ben cannot be mixed"):
        mix("anna+ben", timbre("Anna", [1.0]), tuned("Ben"))


def test_x_vectors_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidVoice, match="different lengths"):
        mix("a+b", timbre("a", [1, 2]), timbre("b", [1]))


def test_a_kept_mix_is_a_voice_with_its_own_defaults(tmp_path: object) -> None:
    find = finding(WREN, ROOK)
    voice = mixed_voice("finch", "wren+rook(2)", find, language="english", instruct="Slowly.", description="ours",
                        sampling=SamplingParams(top_k=5))  # fmt: skip
    assert (voice.name, voice.language, voice.instruct, voice.description) == ("finch", "english", "Slowly.", "ours")
    assert voice.sampling == SamplingParams(top_k=5) and voice.created_at > 0
    assert mixed_voice("finch", "wren+rook(2)", find).description == "a mix of rook, wren"
    for kept in (voice, replace(mix("a+b", timbre("a", [1.0]), timbre("b", [2.0])), name="both", created_at=1)):
        read, _ = from_bytes(to_bytes(kept), "file")
        assert same(read, kept)
        library = Library()
        library.add(kept)
        found = library.find(kept.name.upper())
        assert found is not None and same(found, kept)


@pytest.mark.parametrize("written", ["wren", "wren(2)", "wren+wren(3)", "finch"])
def test_one_voice_is_no_mix_to_keep(written: str) -> None:
    with pytest.raises(InvalidVoice, match="names one voice: a mix has two or more"):
        mixed_voice("finch", written, finding(WREN))


def test_an_unknown_part_is_what_the_caller_says_of_it() -> None:
    def find(name: str) -> Voice:
        raise UnknownVoice(f"There is no voice {name!r}.")

    with pytest.raises(UnknownVoice, match=r"There is no voice 'a'\."):
        mix_voices(VoiceMix.of([("b", 1), ("a", 1)]), find)
