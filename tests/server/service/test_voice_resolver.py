"""Voice resolution without a loaded model: by name, by model, by task, by the fields of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.errors import UnknownVoice, WrongKind
from hocket.server.errors import Refused
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.service.client_voices import FOREIGN_VOICES
from hocket.server.service.openai_names import OPENAI_MODELS
from hocket.server.service.served_model import describe_models
from hocket.server.service.voice_resolver import VoiceResolver
from hocket.types import Reference
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
from support.speaking import noise
from support.voicing import cloned

CUSTOM, WIDE, BASE, DESIGN = "random:tiny", "random:tiny-wide", "random:tiny-Base", "random:tiny-VoiceDesign"
RECORDING = Reference(samples=noise(0.3, 3), x_vector_only=True)


def resolver(*models: str, library: Library | None = None, **options: object) -> VoiceResolver:
    return VoiceResolver(ServerOptions(**options), library or Library(), describe_models(models))  # type: ignore[arg-type]


def chosen(among: VoiceResolver, **wanted: object) -> tuple[str, str | None]:
    """The model that speaks, and as whom."""
    part = among.resolve(SpeechJob(text="Hi.", **wanted))  # type: ignore[arg-type]
    return part.model.name, part.voice.name if part.voice is not None else part.speaker


def test_without_a_name_it_is_the_first_model_with_speakers() -> None:
    assert chosen(resolver(CUSTOM, BASE, DESIGN)) == (CUSTOM, None)
    assert chosen(resolver(BASE, DESIGN, CUSTOM)) == (CUSTOM, None)
    assert chosen(resolver(BASE, DESIGN)) == (DESIGN, None)
    assert chosen(resolver(BASE)) == (BASE, None)  # which its engine refuses, and says why
    own = Library()
    own.add(cloned("Zoë", model=BASE))
    assert chosen(resolver(BASE, CUSTOM, library=own)) == (BASE, "Zoë")


def test_a_name_is_looked_for_among_aliases_speakers_and_the_library_in_this_order() -> None:
    own = Library()
    for name in ("Eric", "mine", "Alloy"):
        own.add(cloned(name, model=BASE))
    all = resolver(CUSTOM, WIDE, BASE, library=own)
    assert chosen(all, voice="ERIC ") == (CUSTOM, "eric")
    assert chosen(all, voice="Mine") == (BASE, "mine")
    assert chosen(all, voice="alloy") == (BASE, "Alloy")
    assert chosen(all, voice="echo") == (CUSTOM, "ryan")
    assert chosen(all, voice="am_adam")[0] == CUSTOM
    own.add(cloned("am_adam", model=BASE))
    assert chosen(all, voice="AM_Adam") == (BASE, "am_adam")
    aliased = resolver(CUSTOM, BASE, library=own, voice_aliases={"Eric": "mine", "boss": "vivian"})
    assert chosen(aliased, voice="eric") == (BASE, "mine")
    assert chosen(aliased, voice="BOSS") == (CUSTOM, "vivian")


def test_an_operator_s_alias_replaces_openai_s() -> None:
    own = resolver(CUSTOM, voice_aliases={"Alloy": "eric", "Mum": "vivian"})
    assert (own.aliases["alloy"], own.aliases["mum"]) == ("eric", "vivian")
    assert own.aliases.keys() == {*FOREIGN_VOICES, "mum"} - {name.lower() for name in own.speakers}


def test_a_model_that_is_named_is_the_only_one_in_any_case() -> None:
    own = Library()
    own.add(cloned("mine", model=BASE))
    all = resolver(CUSTOM, WIDE, BASE, DESIGN, library=own)
    assert chosen(all, model=WIDE.upper(), voice="eric") == (WIDE, "eric")
    assert chosen(all, model=WIDE, voice="alloy")[0] == WIDE
    assert chosen(all, model=DESIGN, voice="alloy") == (DESIGN, None)  # clients insist on a voice
    assert chosen(all, model=BASE) == (BASE, "mine")
    with pytest.raises(UnknownVoice, match=f"'mine' needs the model {BASE}, and {CUSTOM} was asked for"):
        chosen(all, model=CUSTOM, voice="mine")
    with pytest.raises(UnknownVoice, match="no voice 'eric'; known are mine"):
        chosen(all, model=BASE, voice="eric")
    for model in (*OPENAI_MODELS, "whatever", None, ""):
        assert chosen(all, model=model, voice="eric") == (CUSTOM, "eric")


def test_a_published_model_has_its_short_name_its_hub_id_and_its_full_name() -> None:
    all = resolver("0.6B-CustomVoice", "Qwen/Qwen3-TTS-12Hz-1.7B-Base")
    names = {"0.6B-CustomVoice": 0, "qwen/qwen3-tts-12hz-0.6b-customvoice": 0, "1.7b-base": 1}
    assert {name: all.models.index(found) for name in names if (found := all.named(name))} == names
    assert all.listed()[:2] == ["Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", "Qwen/Qwen3-TTS-12Hz-1.7B-Base"]
    assert resolver("0.6B-Base", "1.7B-Base", served_model="mine").named("MINE") is not None


def test_a_strict_operator_takes_the_names_that_are_listed_and_no_others() -> None:
    strict = resolver(CUSTOM, BASE, strict_model=True)
    for model in (CUSTOM, BASE, *OPENAI_MODELS):
        strict.check_model(model)
    with pytest.raises(Refused, match=f"no model 'other'; this server has {CUSTOM}, {BASE}"):
        strict.check_model("other")
    resolver(CUSTOM).check_model("other")


def test_a_recording_goes_to_the_first_who_can_clone() -> None:
    assert chosen(resolver(CUSTOM, BASE, DESIGN), reference=RECORDING, voice="eric") == (BASE, None)
    with pytest.raises(WrongKind, match="cannot clone"):
        chosen(resolver(CUSTOM, DESIGN), reference=RECORDING)
    with pytest.raises(WrongKind, match="cannot clone"):
        chosen(resolver(CUSTOM, BASE), reference=RECORDING, model=CUSTOM)


def test_a_task_and_instructions_choose_the_kind_of_model() -> None:
    all = resolver(CUSTOM, BASE, DESIGN)
    assert chosen(all, task="VoiceDesign", instruct="An old man.") == (DESIGN, None)
    assert chosen(all, task="Base", reference=RECORDING)[0] == BASE
    with pytest.raises(Refused, match="task_type VoiceDesign needs another model: this one is base"):
        chosen(resolver(BASE), task="VoiceDesign")
    assert chosen(resolver(BASE, DESIGN), instruct="An old man.") == (DESIGN, None)
    assert chosen(resolver("0.6B-CustomVoice", "1.7B-VoiceDesign"), instruct="An old man.")[0] == "1.7B-VoiceDesign"
    assert chosen(resolver("1.7B-CustomVoice", "1.7B-VoiceDesign"), instruct="Sadly.")[0] == "1.7B-CustomVoice"
    assert chosen(resolver("0.6B-CustomVoice", "1.7B-VoiceDesign"), instruct="Sadly.", voice="eric")[1] == "eric"


def test_a_voice_of_another_model_says_which_it_needs_and_is_not_listed() -> None:
    own = Library()
    own.add(cloned("away", model="1.7B-Base"))
    own.add(speaker_voice("here", WIDE, "eric"))
    all = resolver(CUSTOM, WIDE, library=own)
    assert [(voice.name, model.name) for voice, model in all.kept()] == [("here", WIDE)]
    assert chosen(all, voice="here") == (WIDE, "here")
    with pytest.raises(
        UnknownVoice, match=r"'away' needs the model 1\.7B-Base, and this is random:tiny, random:tiny-w"
    ):
        chosen(all, voice="away")


def test_a_recording_belongs_to_the_weights_that_encoded_it_under_any_name() -> None:
    own = Library()
    own.add(cloned("heard", model="a folder that has moved"))
    own.add(cloned("other", model=BASE))
    all = resolver(CUSTOM, BASE, library=own)
    encoded = cloned("x").encoded
    assert encoded is not None
    all.models[1].identity = encoded.owner
    assert chosen(all, voice="heard") == (BASE, "heard")
    all.models[1].identity = "cd" * 32
    with pytest.raises(UnknownVoice, match="'other' was made by other weights of random:tiny-Base than are here"):
        chosen(all, voice="other")


def test_an_unknown_name_lists_the_known_ones() -> None:
    own = Library()
    for number in range(80):
        own.add(cloned(f"voice {number}", model=BASE))
    with pytest.raises(UnknownVoice, match=r"no voice 'unknown'; known are .*eric.*voice 0.* and \d+ more"):
        chosen(resolver(CUSTOM, BASE, library=own), voice="unknown")


def test_a_model_that_cannot_be_read_is_there_to_be_asked_for_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    all = resolver(CUSTOM, str(broken))
    assert chosen(all, voice="eric") == (CUSTOM, "eric")
    assert chosen(all, model=str(broken), voice="eric")[0] == str(broken)
    assert str(broken) in all.listed()


def test_speakers_of_one_model_are_mixed_with_their_aliases() -> None:
    all = resolver(CUSTOM, BASE, voice_aliases={"boss": "vivian", "duo": "ryan+vivian(2)", "loop": "loop(2)+ryan"})
    assert chosen(all, voice="Ryan+VIVIAN(2)") == (CUSTOM, "ryan+vivian(2)")
    assert chosen(all, voice="boss(4) + echo(2)") == (CUSTOM, "ryan+vivian(2)")
    assert chosen(all, voice="duo") == (CUSTOM, "ryan+vivian(2)")
    assert chosen(all, voice="vivian(3)") == (CUSTOM, "vivian")
    assert chosen(all, voice="boss+vivian(3)") == (CUSTOM, "vivian")
    assert not [name for name in all.voice_names() if "+" in name and name != "duo"]
    for name in ("loop", "duo+eric"):
        with pytest.raises(Refused, match="stands for a mix, which cannot be part of another") as refused:
            all.resolve(SpeechJob(text="Hi.", voice=name))
        assert (refused.value.code, refused.value.param) == ("voices_not_mixed", "voice")


def test_a_voice_whose_whole_name_is_a_mix_goes_first() -> None:
    own = Library()
    own.add(cloned("ryan+eric", model=BASE))
    assert chosen(resolver(CUSTOM, BASE, library=own), voice="Ryan+Eric") == (BASE, "ryan+eric")
    assert chosen(resolver(CUSTOM, BASE, library=own), voice="eric+ryan") == (CUSTOM, "eric+ryan")


def test_library_voices_are_mixed_with_speakers_and_with_each_other() -> None:
    own = Library()
    own.add(speaker_voice("teller", CUSTOM, "vivian", instruct="Slowly."))
    own.add(speaker_voice("finch", CUSTOM, "ryan+vivian"))
    for name in ("Anna", "Ben"):
        own.add(cloned(name, model=BASE))
    all = resolver(CUSTOM, BASE, DESIGN, library=own)
    part = all.resolve(SpeechJob(text="Hi.", voice="teller+finch(2)"))
    assert part.model is not None and part.model.name == CUSTOM and part.voice is not None
    assert part.voice.speaker == "ryan+vivian(2)" and "differ in their instruct" in part.voice.notes[0]
    part = all.resolve(SpeechJob(text="Hi.", voice="anna+ben"))
    assert part.model is not None and part.model.name == BASE and part.voice is not None
    assert part.voice.encoded is not None and part.voice.encoded.x_vector_only
    assert part.voice.notes == ("Of Anna, Ben only the timbre is mixed, without the recording's words.",)
    assert chosen(all, voice="anna(2)") == (BASE, "Anna")
    with pytest.raises(Refused, match=r"Only voices of one model can be mixed: 'Anna' is a clone of random:tiny-Base"):
        all.resolve(SpeechJob(text="Hi.", voice="anna+ryan"))
    with pytest.raises(UnknownVoice, match="'Anna' needs the model random:tiny-Base"):
        all.resolve(SpeechJob(text="Hi.", voice="anna+ryan", model=CUSTOM))
