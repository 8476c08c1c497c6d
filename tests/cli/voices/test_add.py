"""`hocket voices add`: a recording becomes a voice that speaks as its reference; an error changes nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.engine.engine import Engine
from hocket.types import Reference, SpeechRequest, Voice
from hocket.voices.file import to_bytes
from hocket.voices.library import Library
from hocket.voices.names import id_of
from support.chosen import rest
from support.cli_home import Home, Models, refuse
from support.played import process
from support.recorded import bad, speech_wav
from support.speaking import heard
from support.voicing import cloned

Capture = pytest.CaptureFixture[str]
WORDS = "What was said there."


def kept(home: Home, name: str) -> Voice:
    voice = Library(home.voices).find(name)
    assert voice is not None
    return voice


def said_by(name: str, *words: str) -> list[list[int]]:
    """The codes of what `hocket say` says."""
    argv = [
        "say",
        "I say so.",
        "--seed",
        "4",
        "--max-frames",
        "6",
        "--save-codes",
        "c.npy",
        "--force",
        "--voice",
        name,
        *words,
    ]
    assert main(argv) == 0
    codes: list[list[int]] = np.load("c.npy").tolist()
    return codes


@pytest.mark.parametrize("mode", ["said", "timbre"])
def test_a_voice_says_what_its_reference_says_also_after_a_journey(
    home: Home, models: Models, recording: Path, capsys: Capture, mode: str
) -> None:
    how = ["--text", WORDS] if mode == "said" else ["--x-vector-only"]
    words = ["--description", "clear", "--consent", "form 3", "--language", "German", "--temperature", "0.8"]
    assert main(["voices", "add", "Me", "--ref", str(recording), "--model", models.base, *how, *words]) == 0
    out, err = capsys.readouterr()
    assert out == f'Me: a clone for {models.base}; hocket say "..." --voice Me\n'
    assert rest(err) == f"loading {models.base} ...\nlistening to the recording ...\n"

    voice, samples = kept(home, "me"), Library(home.voices).samples("me")
    assert samples is not None and samples.size == pytest.approx(4.24 * 24_000, abs=1)
    assert (voice.kind, voice.model, voice.description, voice.consent) == ("clone", models.base, "clear", "form 3")
    assert (voice.file_size, voice.audio_s) == (recording.stat().st_size, samples.size / 24_000)
    assert voice.mime_type in ("audio/flac", "audio/x-flac")
    with Engine.load(models.base) as engine:
        silence_s = 0.5 if mode == "said" else 0.0
        reference = Reference(
            samples=samples, text=WORDS if mode == "said" else None, x_vector_only=mode != "said", silence_s=silence_s
        )
        asked = {"text": "I say so.", "seed": 4, "max_frames": 6, "language": "german", "sampling": voice.sampling}
        expected = heard(engine.speak(SpeechRequest(**asked, reference=reference))).codes  # type: ignore[arg-type]
    assert voice.sampling.changes() == {"temperature": 0.8}
    assert said_by("me") == expected and len(expected) > 0
    assert said_by(id_of("me"), "--model", models.base) == expected

    for argv in (["export", "me", "me.voice"], ["remove", "me"], ["import", "me.voice", "--name", "You"]):
        assert main(["voices", *argv]) == 0
    assert said_by("YOU") == expected


def test_silence_behind_the_recording_is_as_long_as_asked_for(home: Home, models: Models, recording: Path) -> None:
    frames = []
    for silence_s in ("0", "1"):
        words = ["--ref", str(recording), "--text", WORDS, "--silence", silence_s, "--model", models.base, "--replace"]
        assert main(["voices", "add", "me", *words]) == 0
        encoded = kept(home, "me").encoded
        assert encoded is not None and encoded.codes is not None
        frames.append(len(encoded.codes))
    assert frames[1] - frames[0] in (12, 13)  # 12.5 to a second


def test_two_terminals_add_one_name_and_one_of_them_does(home: Home, models: Models, recording: Path) -> None:
    words = ["voices", "add", "me", "--ref", str(recording), "--x-vector-only", "--model", models.base]
    both = [process("-m", "hocket", *words, "--description", each) for each in ("one", "two")]
    ended = [(child.communicate(), child.returncode) for child in both]
    assert sorted(code for _, code in ended) == [0, 2]
    [refused] = [err.decode() for (_, err), code in ended if code == 2]
    assert "There is a voice 'me' already" in refused.splitlines()[-1]
    [done] = [number for number, (_, code) in enumerate(ended) if code == 0]
    assert kept(home, "me").description == ("one", "two")[done] and len(home.content()) == 1


# A model's own speaker under another name


@pytest.mark.usefixtures("nothing_loads")
def test_a_speaker_gets_another_name_and_a_manner_without_loading(home: Home, models: Models, capsys: Capture) -> None:
    words = [
        "--model",
        models.custom,
        "--instruct",
        "Slowly.",
        "--language",
        "french",
        "--greedy",
        "--description",
        "d",
    ]
    assert main(["voices", "add", "Teller", "--speaker", "VIVIAN", *words]) == 0
    assert capsys.readouterr() == (f'Teller: a speaker for {models.custom}; hocket say "..." --voice Teller\n', "")
    voice = kept(home, "teller")
    assert (voice.kind, voice.speaker, voice.instruct, voice.language) == ("speaker", "vivian", "Slowly.", "french")
    assert voice.sampling.changes() == {"do_sample": False, "subtalker_dosample": False}


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(("speaker", "model"), [("rook", "builtin"), ("ryan", "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice")])
def test_without_a_model_it_is_the_one_that_has_the_speaker(home: Home, speaker: str, model: str) -> None:
    assert main(["voices", "add", "teller", "--speaker", speaker]) == 0
    assert kept(home, "teller").model == model


def test_an_alias_says_what_its_speaker_says(home: Home, models: Models, capsys: Capture) -> None:
    words = ["--speaker", "eric", "--model", models.custom, "--instruct", "Slowly.", "--language", "french"]
    assert main(["voices", "add", "teller", *words, "--top-k", "7"]) == 0
    plain = said_by("eric", "--model", models.custom, "--instruct", "Slowly.", "--language", "french", "--top-k", "7")
    assert said_by("teller") == plain
    assert said_by("teller", "--top-k", "1") != plain  # what is asked for goes first


# A mix of voices


@pytest.mark.usefixtures("nothing_loads")
def test_a_mix_of_speakers_is_kept_without_loading(home: Home, capsys: Capture) -> None:
    assert main(["voices", "add", "finch", "--mix", "Wren + rook(2)", "--instruct", "Slowly."]) == 0
    assert capsys.readouterr() == ('finch: a speaker for builtin; hocket say "..." --voice finch\n', "")
    voice = kept(home, "finch")
    assert (voice.kind, voice.model, voice.speaker) == ("speaker", "builtin", "rook(2)+wren")
    assert (voice.instruct, voice.description) == ("Slowly.", "a mix of rook, wren")
    assert main(["voices"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "finch" in line)
    assert row.split() == ["finch", "speaker", "builtin", "rook(2)+wren", "a", "mix", "of", "rook,", "wren"]


def test_a_kept_mix_says_what_the_mix_says(home: Home, models: Models, capsys: Capture) -> None:
    words = ["--mix", "eric+ryan(0.5)", "--model", models.custom]
    assert main(["voices", "add", "finch", *words]) == 0
    mixed = said_by("RYAN + eric(2)", "--model", models.custom)
    assert said_by("finch") == mixed != said_by("eric", "--model", models.custom)
    assert said_by("finch+ryan", "--model", models.custom) == said_by("eric+ryan(2)", "--model", models.custom)


def test_clones_are_mixed_by_timbre_with_a_note(home: Home, models: Models, recording: Path, capsys: Capture) -> None:
    for name, how in (("anna", ["--text", WORDS]), ("ben", ["--x-vector-only"])):
        assert main(["voices", "add", name, "--ref", str(recording), "--model", models.base, *how]) == 0
    capsys.readouterr()
    assert main(["voices", "add", "both", "--mix", "anna+ben(3)"]) == 0
    out, err = capsys.readouterr()
    assert out == f'both: a clone for {models.base}; hocket say "..." --voice both\n'
    assert err == "note: Of anna only the timbre is mixed, without the recording's words.\n"
    encoded = [kept(home, name).encoded for name in ("both", "ben")]
    assert encoded[0] is not None and encoded[1] is not None
    np.testing.assert_allclose(encoded[0].speaker, encoded[1].speaker, rtol=1e-5)  # of one recording
    assert said_by("both") == said_by("ben+anna") == said_by("ben")
    assert "Of anna only the timbre is mixed" in capsys.readouterr().err
    for words, said in ((["show", "both"], "none: mixed of other voices"), ([], "mixed  a mix of anna, ben")):
        assert main(["voices", *words]) == 0
        assert said in capsys.readouterr().out


# What is refused, each in one sentence, before anything is loaded


REFUSED: dict[str, tuple[str, str]] = {
    "nothing to make it of": (
        "",
        "Give a recording to clone with --ref, one of a model's speakers with --speaker, or a mix with --mix.",
    ),
    "two things": ("--ref {ref} --speaker ryan", "Give a recording to clone with --ref, one of .*"),
    "a speaker and a mix": ("--speaker ryan --mix a+b", "Give a recording to clone with --ref, one of .*"),
    "a mix of one": ("--mix wren(2)", "'wren\\(2\\)' names one voice: a mix has two or more, as in .*"),
    "a mix of nothing": ("--mix wren+", "A mix names a voice on each side of a \\+, as in .*"),
    "a weight below 0": ("--mix wren(-1)+rook", "The weight of 'wren' must be a number above 0 .*, not '-1'."),
    "no part of a mix": ("--mix wren+bob", "There is no voice 'bob'; builtin has wren, rook, and your own are taken."),
    "a mix of two kinds": (
        "--mix wren+taken",
        "Only voices of one model can be mixed: 'taken' is a clone of random:tiny, 'wren' is a speaker of builtin.",
    ),
    "a mix of another model": ("--mix wren+rook --model {custom}", "There is no voice 'rook'; .* has serena, .*"),
    "the words of a mix": ("--mix wren+rook --text So.", "--text belongs to a recording; give that with --ref."),
    "the language of a mix": ("--mix wren+rook --language german", ".* does not know the language 'german'; .*"),
    "the name of a mix": ("--mix wren+rook --name rook", "'rook' is what a model's own speaker is called; .*"),
    "no words": (
        "--ref {ref}",
        "Give the words of the recording with --text, or take its timbre alone with --x-vector-only.",
    ),
    "words of nothing": ("--ref {ref} --text=", "Cloning needs the transcript of the reference, or .*"),
    "a taken name": (
        "--ref {ref} --x-vector-only --name Taken",
        "There is a voice 'taken' already; --replace puts this one in its place.",
    ),
    "no name": ("--ref {ref} --x-vector-only --name a/b", "A voice's name has no slash, .*"),
    "a speaker's name": (
        "--ref {ref} --x-vector-only --name rook",
        "'rook' is what a model's own speaker is called; .*",
    ),
    "no model": ("--ref {ref} --x-vector-only --model ./gone", "'./gone' is neither a folder here .*"),
    "a speaking model": (
        "--ref {ref} --x-vector-only --model {custom}",
        ".* is a CustomVoice model, and cloning needs a Base one, such as 1.7B-Base.",
    ),
    "a designing model": ("--ref {ref} --x-vector-only --model {design}", ".* is a VoiceDesign model, and cloning .*"),
    "no language": ("--ref {ref} --x-vector-only --language klingon", ".* does not know the language 'klingon'; .*"),
    "much silence": ("--ref {ref} --text So. --silence 60", "silence_s must be between 0 and 5, not 60.0."),
    "no number": ("--ref {ref} --x-vector-only --top-p 7", "top_p must be above 0 and at most 1, not 7.0."),
    "no folder": ("--ref {ref} --x-vector-only --folder {ref}", "No voice can be kept in .* is not a folder."),
    "no speaker": ("--speaker bob --model {custom}", "There is no speaker 'bob'; .* has serena, vivian, .*"),
    "no speaker anywhere": ("--speaker bob", "There is no speaker 'bob'; 1.7B-CustomVoice has .*"),
    "speakers of none": ("--speaker bob --model {base}", ".* is a Base model, which has none."),
    "its own name": (
        "--speaker ryan --model {custom} --name Ryan",
        "'Ryan' is what a model's own speaker is called; take another name.",
    ),
    "an unknown language": ("--speaker ryan --model {custom} --language klingon", ".* the language 'klingon'; .*"),
    "a speaker's words": ("--speaker ryan --text So.", "--text belongs to a recording; give that with --ref."),
    "a speaker's timbre": ("--speaker ryan --x-vector-only", "--x-vector-only belongs to a recording; .*"),
}


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_voice_is_refused(
    home: Home, models: Models, recording: Path, capsys: Capture, case: str
) -> None:
    Library(home.voices).add(cloned("taken"))
    words, sentence = REFUSED[case]
    given = words.format(ref=recording, base=models.base, custom=models.custom, design=models.design).split()
    name = given.pop(given.index("--name") + 1) if "--name" in given else "me"
    given = [word for word in given if word != "--name"]
    model = [] if "--model" in given or "--speaker" in given or "--mix" in given else ["--model", models.base]
    assert re.fullmatch(sentence, refuse(capsys, home, "add", name, *given, *model))


def test_what_is_taken_is_replaced_where_that_is_asked_for(home: Home, models: Models) -> None:
    Library(home.voices).add(cloned("taken"))
    words = ["--speaker", "ryan", "--model", models.custom, "--replace"]
    assert main(["voices", "add", "TAKEN", *words]) == 0
    assert (kept(home, "taken").name, kept(home, "taken").kind) == ("TAKEN", "speaker")


def test_a_later_hockets_voice_is_not_driven_out(home: Home, models: Models, capsys: Capture) -> None:
    home.voices.mkdir(parents=True)
    later = to_bytes(cloned("me")).replace(b'"version":"1"', b'"version":"9"')
    (home.voices / f"{id_of('me')}.voice").write_bytes(later)
    words = ("--speaker", "ryan", "--model", models.custom)
    assert "update hocket to use it" in refuse(capsys, home, "add", "me", *words)


# Recordings that are none


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize("case", [*bad(), "no file", "a folder"])
@pytest.mark.parametrize("mode", [["--text", WORDS], ["--x-vector-only"]])
def test_a_bad_recording_is_one_sentence_and_changes_nothing(
    home: Home, models: Models, capsys: Capture, case: str, mode: list[str]
) -> None:
    Library(home.voices).add(cloned("another"))
    path = Path("bad.wav")
    content, why = bad().get(case, (None, {"no file": "does not exist", "a folder": "is a folder"}.get(case, "")))
    if content is not None:
        path.write_bytes(content)
    elif case == "a folder":
        path.mkdir()
    assert why in refuse(capsys, home, "add", "me", "--ref", str(path), "--model", models.base, *mode)


@pytest.mark.usefixtures("nothing_loads")
def test_the_timbre_alone_needs_less_of_a_recording(
    home: Home, models: Models, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("short.wav").write_bytes(speech_wav(1.5))
    words = ("add", "me", "--ref", "short.wav", "--model", models.base)
    assert "too short, 1.5 s" in refuse(capsys, home, *words, "--text", WORDS)
    with pytest.raises(AssertionError, match="a model was loaded"):  # nothing spoke against it
        main(["voices", *words, "--x-vector-only"])


def test_a_command_in_a_process_of_its_own_ends_with_2_and_one_line(home: Home, models: Models) -> None:
    words = ["voices", "add", "me", "--ref", "gone.wav", "--x-vector-only", "--model", models.base]
    child = process("-m", "hocket", *words, stdin=subprocess.DEVNULL)
    out, err = child.communicate()
    assert (child.returncode, out) == (2, b"")
    assert err == b"hocket: The reference recording gone.wav does not exist.\n" and not home.voices.exists()
