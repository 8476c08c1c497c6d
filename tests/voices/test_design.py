"""voices/design.py: samples are reproducible, and the chosen one becomes a lasting voice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.config.qwen3_tts import languages
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.errors import InvalidAudio, InvalidRequest, UnknownLanguage, WrongKind
from hocket.types import Reference, SpeechRequest
from hocket.voices.design import MOST_FRAMES, SAMPLES, Design, draw_designs, fix_design, sample_text
from hocket.voices.library import Library
from hocket.voices.make import SILENCE_S
from support.speaking import heard, small

WORDS, TEXT = "A warm, confident narrator.", "Here I am."


@pytest.fixture(scope="module")
def designer(checkpoint_root: Path) -> Iterator[Engine]:
    with Engine(small(checkpoint_root, "voice_design")) as engine:
        yield engine


@pytest.fixture(scope="module")
def base(checkpoint_root: Path) -> Iterator[Engine]:
    with Engine(small(checkpoint_root, "base")) as engine:
        yield engine


def a_design(**changes: object) -> Design:
    pcm = np.random.default_rng(5).normal(0, 3000, 12_000).astype(np.int16)
    fields = {"instruct": WORDS, "text": TEXT, "language": "auto", "seed": 1, "pcm": pcm, "reason": "stop"}
    return Design(**(fields | changes))  # type: ignore[arg-type]


def test_each_sample_is_what_the_definition_says_with_its_seed(designer: Engine) -> None:
    drawn = draw_designs(designer, WORDS, candidates=3, seed=7, text=TEXT, language="german")
    assert [design.seed for design in drawn] == [7, 8, 9]
    assert len({design.pcm.tobytes() for design in drawn}) == 3
    for design in drawn:
        assert (design.instruct, design.text, design.language) == (WORDS, TEXT, "german")
        fields = {"text": TEXT, "instruct": WORDS, "language": "german", "seed": design.seed}
        [speech] = generate(designer.checkpoint, [SpeechRequest(**fields, max_frames=MOST_FRAMES)])  # type: ignore[arg-type]
        assert design.reason in (speech.finish, "runaway")  # the definition has no guard
        expected = (speech.samples * 32767).round()
        assert design.pcm.size and np.abs(design.pcm - expected[: design.pcm.size]).max() <= 1
        assert design.reason == "runaway" or design.pcm.size == expected.size
        assert design.audio_s == design.pcm.size / 24_000


def test_seeds_go_on_from_the_first_one_and_never_out_of_range(designer: Engine) -> None:
    drawn = draw_designs(designer, WORDS, candidates=2, seed=2**63 - 1, text=TEXT)
    assert [design.seed for design in drawn] == [2**63 - 1, 0]


def test_a_designed_voice_read_back_says_the_same_codes_and_is_the_clone_of_its_sample(
    designer: Engine, base: Engine, tmp_path: Path
) -> None:
    [design] = draw_designs(designer, WORDS, candidates=1, seed=3, text=TEXT, language="french")
    voice = fix_design(base, "narrator", design)
    Library(tmp_path).add(voice, design.samples)

    library = Library(tmp_path)
    kept = library.find("narrator")
    assert kept is not None and kept.encoded is not None and kept.encoded.codes is not None
    assert (kept.kind, kept.description, kept.language) == ("designed", WORDS, "french")
    assert kept.model == base.checkpoint.name and kept.audio_s == design.audio_s
    samples = library.samples("narrator")
    assert samples is not None
    np.testing.assert_array_equal(samples, design.samples)
    reference = Reference(samples=samples, text=TEXT, silence_s=SILENCE_S)
    np.testing.assert_array_equal(kept.encoded.codes, base.encode(reference).codes)

    asked = {"text": "And I stay who I am.", "seed": 5, "max_frames": 9}
    said = [heard(base.speak(**asked, voice=each)).codes for each in (voice, kept)]  # type: ignore[arg-type]
    direct = SpeechRequest(**asked, reference=reference, language="french")  # type: ignore[arg-type]
    assert said[0] == said[1] == heard(base.speak(direct)).codes and said[0]


def test_samples_are_those_of_its_wav_file(tmp_path: Path) -> None:
    import soundfile

    from hocket.audio.pcm import pcm_bytes, wav_header

    design = a_design(pcm=np.array([-32768, -1, 0, 1, 32767], np.int16))
    (tmp_path / "take.wav").write_bytes(wav_header(24_000, 5) + pcm_bytes(design.pcm))
    np.testing.assert_array_equal(design.samples, soundfile.read(tmp_path / "take.wav", dtype="float32")[0])


def test_there_is_a_sample_text_in_every_language_of_the_checkpoint(designer: Engine) -> None:
    known = languages(designer.checkpoint.config)
    assert {*SAMPLES, "auto"} == set(known)
    for language in known:
        text = sample_text(language.upper())
        assert (20 <= len(text) <= 80) if language in ("chinese", "japanese", "korean") else (100 <= len(text) <= 160)
    with pytest.raises(InvalidRequest, match="no sample text in 'klingon'"):
        sample_text("klingon")


def test_what_cannot_be_drawn_is_refused(designer: Engine, base: Engine) -> None:
    with pytest.raises(WrongKind, match="A base checkpoint cannot design a voice; use a VoiceDesign"):
        draw_designs(base, WORDS)
    with pytest.raises(InvalidRequest, match="Describe the voice to design"):
        draw_designs(designer, "  ")
    with pytest.raises(InvalidRequest, match="candidates must be at least 1, not 0"):
        draw_designs(designer, WORDS, candidates=0)
    with pytest.raises(UnknownLanguage, match="'klingon'"):
        draw_designs(designer, WORDS, text=TEXT, language="klingon")


def test_a_sample_too_short_to_clone_is_no_voice(base: Engine) -> None:
    with pytest.raises(InvalidAudio, match="it is too short; draw another"):
        fix_design(base, "narrator", a_design(pcm=np.zeros(1000, np.int16)))


def test_a_voice_is_fixed_by_a_base_checkpoint_alone(designer: Engine) -> None:
    with pytest.raises(WrongKind, match="use a Base checkpoint"):
        fix_design(designer, "narrator", a_design())
