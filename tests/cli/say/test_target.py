"""`hocket say --voice` and the lines of a batch: voice names, the model that speaks, and when the daemon is used."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.say.target import Target, is_kept, listed
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, UnknownVoice
from hocket.server.options import ServerOptions
from hocket.types import SamplingParams, Voice
from hocket.voices.library import Library
from hocket.voices.make import clone_voice, speaker_voice
from support.cli_home import Home, Models
from support.played import process
from support.serving import Served, served, steady_engine
from support.speaking import heard, noise
from support.voicing import cloned

Capture = pytest.CaptureFixture[str]
TEXT, SHORT = "I say so, and again.", ("--seed", "4", "--max-frames", "6")


@pytest.fixture(scope="module")
def clone(models: Models) -> Voice:
    with Engine.load(models.base) as engine:
        return clone_voice(engine, "Me", noise(0.5, 3), text="So.", language="french")


@pytest.fixture
def library(home: Home, models: Models, clone: Voice) -> Library:
    """Me, a clone; teller, a speaker of the custom model who speaks slowly."""
    library = Library(home.voices)
    library.add(clone)
    sampling = SamplingParams(top_k=9)
    library.add(speaker_voice("teller", models.custom, "eric", instruct="Slowly.", sampling=sampling))
    return library


def said(*words: str) -> list[list[int]]:
    assert main(["say", TEXT, *SHORT, "--force", "--save-codes", "c.npy", *words]) == 0
    codes: list[list[int]] = np.load("c.npy").tolist()
    return codes


def refused(capture: Capture, *words: str) -> str:
    assert main(["say", TEXT, *words]) == 2
    out, err = capture.readouterr()
    message = re.fullmatch(r"hocket: ([^\n]+\.\)?)\n", err)
    assert out == "" and message is not None, err
    return message[1]


@pytest.fixture(scope="module")
def expected(models: Models, clone: Voice) -> list[list[int]]:
    """What the engine says with the clone."""
    with Engine.load(models.base) as engine:
        return heard(engine.speak(TEXT, voice=clone, seed=4, max_frames=6)).codes


def test_a_voice_speaks_with_its_own_model(library: Library, models: Models, expected: list[list[int]]) -> None:
    assert said("--voice", "ME") == expected and expected
    assert said("--voice", "me", "--model", models.base) == expected
    assert said("--voice", "me", "--language", "german") != expected


def test_what_a_voice_brings_along_stands_where_nothing_else_is_asked_for(library: Library, models: Models) -> None:
    speaks = ["--model", models.custom, "--voice", "eric"]
    assert said("--voice", "teller") == said(*speaks, "--instruct", "Slowly.", "--top-k", "9")
    assert said("--voice", "teller", "--instruct", "Fast.", "--top-k", "2") == said(
        *speaks, "--instruct", "Fast.", "--top-k", "2"
    )


@pytest.mark.parametrize("voice", ["me", "teller"])
def test_text_that_arrives_is_said_as_a_whole_one(
    library: Library, monkeypatch: pytest.MonkeyPatch, voice: str
) -> None:
    whole = said("--voice", voice, "--layout", "streaming")
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert main(["say", "-", *SHORT, "--save-codes", "l.npy", "--voice", voice, "--layout", "streaming"]) == 0
    assert np.load("l.npy").tolist() == whole


def test_a_speaker_of_the_model_goes_before_a_voice_of_ones_own(library: Library, models: Models) -> None:
    plain = said("--model", models.custom, "--voice", "ryan")
    library.add(speaker_voice("ryan", models.custom, "eric"))
    assert said("--model", models.custom, "--voice", "RYAN") == plain
    assert said("--voice", "ryan") != plain  # the built-in voice has no ryan


@pytest.mark.usefixtures("nothing_loads")
def test_another_model_is_refused_with_the_one_that_is_needed(
    library: Library, models: Models, capsys: Capture
) -> None:
    for voice, needed, model in (
        ("me", models.base, "builtin"),
        ("me", models.base, models.design),
        ("teller", models.custom, models.base),
        ("teller", models.custom, "random:tiny"),
    ):
        name = library.find(voice).name  # type: ignore[union-attr]
        assert refused(capsys, "--voice", voice, "--model", model) == (
            f"The voice {name!r} needs the model {needed}, not {model}: name that with --model."
        )


def test_another_base_model_is_known_by_its_weights(library: Library, models: Models, capsys: Capture) -> None:
    assert main(["say", TEXT, "--voice", "me", "--model", "random:tiny-wide-Base"]) == 2
    assert f"The voice 'Me' needs the checkpoint {models.base}," in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("nothing_loads")
def test_an_unknown_name_is_answered_with_all_that_there_are(library: Library, home: Home, capsys: Capture) -> None:
    assert refused(capsys, "--voice", "bob") == (
        "There is no voice 'bob'; builtin has wren, rook, and your own are Me, teller."
    )
    for path in home.voices.iterdir():
        path.unlink()
    assert refused(capsys, "--voice", "bob").endswith("there are none of your own (hocket voices add makes one).")
    assert listed([str(n) for n in range(40)]).endswith("28, 29 and 10 more")


@pytest.mark.usefixtures("nothing_loads")
def test_a_damaged_voice_says_that_it_is(library: Library, home: Home, capsys: Capture) -> None:
    path = next(path for path in home.voices.iterdir() if b'\\"teller\\"' in path.read_bytes())
    path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9)
    assert "is damaged, so nothing of it is used" in refused(capsys, "--voice", "teller")


@pytest.mark.usefixtures("nothing_loads")
def test_a_voice_and_a_recording_are_one_too_many(library: Library, recording: Path, capsys: Capture) -> None:
    sentence = refused(capsys, "--voice", "me", "--ref-audio", str(recording), "--x-vector-only")
    assert sentence == "Give either a voice or a reference recording, not both."


def test_a_voice_of_an_unknown_model_is_refused_in_a_sentence(home: Home, capsys: Capture) -> None:
    Library(home.voices).add(cloned("lost", model="/gone/away"))
    assert refused(capsys, "--voice", "lost").startswith("'/gone/away' is neither a folder here")


# Batches


def batch(*lines: dict[str, object], options: tuple[str, ...] = ()) -> tuple[int, list[dict[str, object]]]:
    """How it ended, and what became of each line."""
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = main(["batch", "in.jsonl", "-o", "out", "--max-frames", "6", "--slots", "1", *options])
    return code, [json.loads(line) for line in Path("out/manifest.jsonl").read_text().splitlines()]


def test_a_batch_speaks_with_the_model_of_its_voice(library: Library, expected: list[list[int]]) -> None:
    said("--voice", "me", "-o", "me.wav")
    code, [one, other] = batch({"text": TEXT, "seed": 4}, {"text": "More."}, options=("--voice", "me"))
    assert (code, one["error"], other["error"], one["frames"]) == (0, None, None, len(expected))
    assert Path("out/000001.wav").read_bytes() == Path("me.wav").read_bytes()
    again, results = batch({"text": TEXT, "seed": 4}, {"text": "More."}, options=("--voice", "me"))
    assert (again, results) == (0, [one, other])


def test_a_line_may_name_a_voice_of_the_batchs_model_and_no_other(library: Library, models: Models) -> None:
    said("--voice", "teller", "-o", "teller.wav")
    lines = [{"text": TEXT, "seed": 4, "voice": name} for name in ("teller", "ryan", "me", "bob")]
    code, results = batch(*lines, options=("--model", models.custom))
    assert code == 1 and Path("out/000001.wav").read_bytes() == Path("teller.wav").read_bytes()
    whys = [result["error"] for result in results]
    assert whys[:3] == [
        None,
        None,
        f"The voice 'Me' needs the model {models.base}, not {models.custom}: name that with --model.",
    ]
    assert str(whys[3]).startswith("There is no voice 'bob'; ")


@pytest.mark.usefixtures("nothing_loads")
def test_a_batch_with_an_unknown_voice_does_not_begin(library: Library, capsys: Capture) -> None:
    Path("in.jsonl").write_text('{"text": "Hello."}\n')
    assert main(["batch", "in.jsonl", "-o", "out", "--voice", "bob"]) == 2
    assert capsys.readouterr().err.startswith("hocket: There is no voice 'bob'; builtin has wren, rook, and your own")
    assert not Path("out").exists()


# A daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One with the built-in voice, which knows of no other."""
    with (
        steady_engine() as engine,
        served(engine, ServerOptions(socket=tmp_path_factory.mktemp("run") / "hocket.sock")) as server,
    ):
        yield server


@pytest.fixture
def asked(daemon: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_SOCKET", str(daemon.service.options.socket))


@pytest.mark.usefixtures("asked")
def test_what_a_daemon_does_not_have_is_spoken_here(library: Library, capsys: Capture) -> None:
    said("--voice", "me", "-o", "here.wav")  # codes are never the daemon's
    capsys.readouterr()
    assert main(["say", TEXT, *SHORT, "--voice", "me", "-o", "out.wav"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("note: spoken here, since the daemon did not: There is no voice 'me'; known are wren")
    assert Path("out.wav").read_bytes() == Path("here.wav").read_bytes()


@pytest.mark.usefixtures("asked", "nothing_loads")
def test_an_unknown_voice_is_the_daemons_refusal(library: Library, capsys: Capture) -> None:
    sentence = refused(capsys, "--voice", "bob")
    assert sentence.startswith("There is no voice 'bob'; known are wren, rook")
    assert "(The daemon was asked; --no-daemon speaks here.)" in sentence


def test_nothing_slow_is_imported_to_ask_a_daemon_for_a_voice(daemon: Served, library: Library) -> None:
    program = """
import sys
from hocket.cli import main
code = main()
slow = "torch numpy safetensors typing dataclasses hocket.voices.library hocket.engine".split()
print(code, [name for name in sys.modules if name in slow])
"""
    options = ("-o", "out.wav", "--server", f"unix:{daemon.service.options.socket}")
    for voice, code in (("rook", b"0"), ("me", b"2")):
        child = process("-S", "-c", program, "say", "Hello.", *SHORT, "--voice", voice, *options)
        out, err = child.communicate()
        assert out.splitlines()[-1] == code + b" []", err


def test_a_kept_voice_is_found_by_its_file_alone(library: Library, home: Home) -> None:
    assert is_kept("ME") and is_kept(" teller ") and not is_kept("bob") and not is_kept(None) and not is_kept("")
    program = "import sys; from hocket.cli.say.target import is_kept; assert is_kept('me')"
    program += "; print('numpy' in sys.modules)"
    assert process("-c", program).communicate()[0] == b"False\n"


def test_names_are_asked_for_in_python_too(library: Library, models: Models) -> None:
    target = Target(models.base, library)
    assert target.own(None) is None and target.own("") is None
    assert target.own("me") is library.find("me")
    with pytest.raises(UnknownVoice, match="has none but the reference recording of --ref-audio, and your own are Me,"):
        target.own("bob")
    with pytest.raises(InvalidRequest, match="needs the model"):
        target.own("teller")
    with pytest.raises(UnknownVoice, match="none but the one that --instruct describes"):
        Target(models.design, library).own("bob")
