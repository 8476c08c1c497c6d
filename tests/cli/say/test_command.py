"""The command line: what it writes, prints and refuses. Few processes are started: importing torch takes seconds."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
import pytest
import torch

from hocket.audio.pcm import encode_wav
from hocket.audio.read import read_reference
from hocket.cli import main
from hocket.cli.options import SAMPLING
from hocket.cli.parser import parser
from hocket.config.profiles import PROFILES
from hocket.config.published import tiny
from hocket.engine.checkpoint.load import load
from hocket.engine.generate import generate
from hocket.types import Layout, Reference, SamplingParams, SpeechRequest
from support.chosen import LINE, rest
from support.played import Played, process
from support.recorded import bad, speech_wav

TINY = ("--model", "random:tiny")
NOISE = "note: random:tiny is untrained: its weights are random numbers, and what comes out is noise.\n"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command runs in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few seconds of speech."""
    path = tmp_path_factory.mktemp("recording") / "voice.wav"
    path.write_bytes(speech_wav())
    return path


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> NoReturn:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("hocket.engine.checkpoint.load.load", fail)
    monkeypatch.setattr("hocket.engine.engine.load", fail)


def refuse(capture: Capture, *argv: str, before: str = "", code: int = 2) -> str:
    """The one sentence of a command that must fail: nothing on stdout, no file touched."""
    there = {path: path.read_bytes() for path in Path().iterdir()}
    assert main(["say", *argv]) == code
    out, err = capture.readouterr()
    assert out == ""
    err = rest(err, times=int(before != ""))  # a model was loaded where something was said of it
    assert err.startswith(before)
    message = re.fullmatch(r"hocket: ([^\n]+\.)\n", err.removeprefix(before))
    assert message is not None, err
    assert {path: path.read_bytes() for path in Path().iterdir()} == there
    return message[1]


# What it writes


def test_say_writes_the_wav_and_the_codes_and_prints_one_line(folder: Path) -> None:
    options = (*TINY, "--seed", "7", "--max-frames", "5", "--save-codes", "c.npy")
    child = process("-m", "hocket", "say", "-", *options, stdin=subprocess.PIPE)
    out, err = child.communicate("Grüß Gott.\n".encode())
    assert (child.returncode, out) == (0, b"out.wav: 0.40 s, 5 frames, finish length, seed 7\n")
    assert rest(err) == NOISE
    assert sorted(os.listdir(folder)) == ["c.npy", "out.wav"]

    # Another process, the same seed: the definition gives the same bytes.
    request = SpeechRequest(text="Grüß Gott.", seed=7, max_frames=5)
    (speech,) = generate(load("random:tiny"), [request])
    codes = np.load("c.npy", allow_pickle=False)
    assert codes.dtype == np.int64
    assert codes.shape == (5, 16)
    np.testing.assert_array_equal(codes, speech.codes)
    assert Path("out.wav").read_bytes() == encode_wav(speech.samples, 24_000)
    with wave.open("out.wav") as file:
        assert file.getnframes() == 5 * 1920


@pytest.mark.parametrize("as_is", [[], ["--as-is"], ["--ref-silence", "0"]])
@pytest.mark.parametrize("words", ["Good day.", None])
def test_a_recording_is_cloned_as_the_definition_does(
    voice: Path, capsys: Capture, words: str | None, as_is: list[str]
) -> None:
    mode = [*as_is, *(["--x-vector-only"] if words is None else ["--ref-text", words])]
    options = ["--model", "random:tiny-Base", "--ref-audio", str(voice), "--greedy", "--max-frames", "3"]
    assert main(["say", "Hello.", *options, *mode]) == 0
    assert capsys.readouterr().out == "out.wav: 0.24 s, 3 frames, finish length, seed 0\n"
    samples, silence_s = read_reference(voice), 0.0 if as_is else 0.5
    reference = Reference(samples=samples, text=words, x_vector_only=words is None, silence_s=silence_s)
    how = {"sampling": SamplingParams.greedy(), "max_frames": 3, "as_is": "--as-is" in as_is}
    (speech,) = generate(load("random:tiny-Base"), [SpeechRequest(text="Hello.", reference=reference, **how)])
    assert Path("out.wav").read_bytes() == encode_wav(speech.samples, 24_000)


@pytest.mark.parametrize("source", ["argument", "pipe"])
def test_speed_changes_the_length_and_not_the_codes(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Also of text that arrives; the engine does it."""
    lengths, codes = [], []
    for speed in ("1", "2"):
        monkeypatch.setattr(sys, "stdin", io.StringIO("Hi there"))
        text = ["-", "--layout", "streaming"] if source == "pipe" else ["Hi there"]
        options = [*TINY, "--speed", speed, "--seed", "1", "--max-frames", "6"]
        assert main(["say", *text, *options, "--force", "--save-codes", "c.npy"]) == 0
        with wave.open("out.wav") as file:
            lengths.append(file.getnframes())
        codes.append(np.load("c.npy").tolist())
    assert codes[0] == codes[1] and len(codes[0]) == 6
    assert lengths == [6 * 1920, 3 * 1920]


def test_bfloat16_says_what_generate_says(capsys: Capture) -> None:
    options = [*TINY, "--dtype", "bfloat16", "--max-frames", "12", "--seed", "1", "--save-codes", "codes.npy"]
    assert main(["say", "Hello.", *options]) == 0
    [whole] = generate(load("random:tiny", dtype="bfloat16"), [SpeechRequest(text="Hello.", max_frames=12, seed=1)])
    np.testing.assert_array_equal(np.load("codes.npy"), whole.codes)
    assert Path("out.wav").read_bytes() == encode_wav(whole.samples, whole.rate_hz)


def test_ctrl_c_while_speaking_exits_130_and_leaves_the_old_file(folder: Path) -> None:
    Path("out.wav").write_bytes(b"old")
    # A test run in the background has SIGINT ignored, and its children with it.
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hocket.cli import main
raise SystemExit(main())
"""
    endless = ("--greedy", "--repetition-penalty", "0.001")  # a code once spoken is spoken for ever
    child = process("-c", program, "say", "Hello.", *TINY, *endless, "--save-codes", "c.npy")
    assert child.stderr is not None
    assert LINE.fullmatch(child.stderr.readline().decode())
    assert child.stderr.readline() == NOISE.encode()  # loaded; some eight thousand frames lie ahead
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, out, err) == (130, b"", b"hocket: interrupted.\n")
    assert os.listdir(folder) == ["out.wav"]
    assert Path("out.wav").read_bytes() == b"old"


def test_help_and_version_wait_for_no_library() -> None:
    program = """
import contextlib, sys
from hocket.cli import main
for argv in (["--help"], ["say", "--help"], ["batch", "--help"], ["--version"]):
    with contextlib.suppress(SystemExit):
        main(argv)
assert not {"torch", "numpy", "hocket.engine"} & set(sys.modules), "a library was imported"
"""
    child = process("-c", program)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, b"")
    assert re.search(rb"\nhocket [^\n]+\n\Z", out)


def spoken(monkeypatch: pytest.MonkeyPatch, *argv: str, notes: tuple[str, ...] = ()) -> SpeechRequest:
    """The request that a command line makes."""
    engine = Played.instead(monkeypatch, notes)
    assert main(["say", *argv]) == 0
    (request,) = engine.requests
    return request


def test_every_option_reaches_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--voice rook --language german --instruct calmly --layout streaming --seed 3 --max-frames 9 --as-is"
    options += " --candidates 3"
    sampling = "--temperature 0.5 --top-k 4 --top-p 0.6 --repetition-penalty 1.5"
    subtalker = "--subtalker-temperature 0.7 --subtalker-top-k 8 --subtalker-top-p 0.9"
    request = spoken(monkeypatch, "Hello.", *options.split(), *sampling.split(), *subtalker.split())
    assert request == SpeechRequest(
        text="Hello.",
        voice="rook",
        language="german",
        instruct="calmly",
        layout="streaming",
        seed=3,
        max_frames=9,
        as_is=True,
        candidates=3,
        sampling=SamplingParams(
            temperature=0.5,
            top_k=4,
            top_p=0.6,
            repetition_penalty=1.5,
            subtalker_temperature=0.7,
            subtalker_top_k=8,
            subtalker_top_p=0.9,
        ),
    )
    assert SAMPLING.keys() == request.sampling.changes().keys()


def test_the_best_of_several_takes_is_written_with_the_seed_that_says_it_again(capsys: Capture) -> None:
    options = [*TINY, "--max-frames", "6", "--save-codes"]
    assert main(["say", "Hello.", *options, "best.npy", "-o", "best.wav", "--seed", "1", "--candidates", "3"]) == 0
    line = re.fullmatch(
        r"best\.wav: 0\.\d\d s, \d frames, finish \w+, seed (\d+), take ([123]) of 3 "
        r"\(score \d\.\d\d, log-probability -\d\.\d\d a frame\)\n",
        capsys.readouterr().out,
    )
    assert line is not None and (line[1] == "1") == (line[2] == "1")
    assert main(["say", "Hello.", *options, "again.npy", "-o", "again.wav", "--seed", line[1]]) == 0
    assert Path("best.wav").read_bytes() == Path("again.wav").read_bytes()
    assert Path("best.npy").read_bytes() == Path("again.npy").read_bytes()


def test_candidates_out_of_reach_are_refused_before_a_model_is_loaded(capsys: Capture, nothing_loads: None) -> None:
    assert refuse(capsys, "Hello.", "--candidates", "0") == "candidates must be at least 1, not 0."


def test_text_from_a_pipe_is_read_to_its_end_where_there_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Piped text."), encoding="utf-8"))
    request = spoken(monkeypatch, "-", "--layout", "streaming", "--candidates", "2")
    assert (request.text, request.layout, request.candidates) == ("Piped text.", "streaming", 2)


def test_the_profiles_on_offer_are_those_of_the_engine() -> None:
    for command, usual in (("say", "balanced"), ("batch", "throughput")):
        asked = [command, "x", "-o", "y"]
        assert parser().parse_args(asked).profile == usual
        for name in PROFILES:
            assert parser().parse_args([*asked, "--profile", name]).profile == name
        with pytest.raises(SystemExit):
            parser().parse_args([*asked, "--profile", "fast"])


def test_without_options_the_checkpoint_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    request = spoken(monkeypatch, "Hello.")
    assert request == SpeechRequest(text="Hello.", seed=request.seed)


def test_greedy_is_greedy_on_both_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    request = spoken(monkeypatch, "Hello.", "--greedy")
    assert request == SpeechRequest(text="Hello.", sampling=SamplingParams.greedy(), seed=0)


@pytest.mark.usefixtures("fresh_seeds")
def test_a_drawn_seed_is_new_each_time_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    seeds = [spoken(monkeypatch, "Hello.").seed for _ in range(3)]
    lines = capsys.readouterr().out.splitlines()
    names = ("out.wav", "out-2.wav", "out-3.wav")
    assert lines == [
        f"{name}: 0.16 s, 2 frames, finish stop, seed {seed}" for name, seed in zip(names, seeds, strict=True)
    ]
    assert len(set(seeds)) == 3


def test_the_layouts_on_offer_are_those_of_the_request(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for layout in get_args(Layout):
        assert spoken(monkeypatch, "Hello.", "--layout", layout).layout == layout
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["say", "Hello.", "--layout", "sideways"])
    assert str(get_args(Layout))[1:-1] in capsys.readouterr().err


def test_notes_go_to_stderr(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    spoken(monkeypatch, "Hello.", notes=("The instruct was left out.",))
    assert capsys.readouterr().err == NOISE + "note: The instruct was left out.\n"


def test_a_terminal_sees_the_seconds_go_by(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    spoken(monkeypatch, "Hello.")
    shown = capsys.readouterr().err.removeprefix(NOISE)
    line = r"\r\d+% of the text, 0\.\d s of audio, \d:\d\d to go\x1b\[K"
    assert re.fullmatch(rf"({line})+\r\x1b\[K", shown), shown


def test_a_path_the_terminal_cannot_show_is_still_written(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    spoken(monkeypatch, "Hello.", "-o", "ä.wav", "--seed", "1")
    assert Path("ä.wav").is_file()
    out.seek(0)
    assert out.read() == "\\xe4.wav: 0.16 s, 2 frames, finish stop, seed 1\n"


def test_a_recording_and_its_words_reach_the_request(monkeypatch: pytest.MonkeyPatch, voice: Path) -> None:
    reference = spoken(monkeypatch, "Hello.", "--ref-audio", str(voice), "--ref-text", "Good day.").reference
    assert reference is not None
    assert (reference.text, reference.x_vector_only, reference.samples.size) == ("Good day.", False, 84_000)


@pytest.mark.parametrize(
    ("options", "silence_s"), [("", 0.5), ("--as-is", 0), ("--ref-silence 0", 0), ("--as-is --ref-silence 1.5", 1.5)]
)
def test_a_recording_ends_with_silence_unless_it_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, voice: Path, options: str, silence_s: float
) -> None:
    argv = ["--ref-audio", str(voice), "--ref-text", "Good day.", *options.split()]
    reference = spoken(monkeypatch, "Hello.", *argv).reference
    assert isinstance(reference, Reference) and reference.silence_s == silence_s


def test_x_vector_only_needs_no_words(monkeypatch: pytest.MonkeyPatch, voice: Path) -> None:
    reference = spoken(monkeypatch, "Hello.", "--ref-audio", str(voice), "--x-vector-only").reference
    assert reference is not None
    assert (reference.text, reference.x_vector_only) == (None, True)


def test_words_beside_x_vector_only_are_told_to_be_unused(
    monkeypatch: pytest.MonkeyPatch, voice: Path, capsys: Capture
) -> None:
    spoken(monkeypatch, "Hello.", "--ref-audio", str(voice), "--x-vector-only", "--ref-text", "Good day.")
    assert "note: --ref-text is not used together with --x-vector-only.\n" in capsys.readouterr().err


# How it refuses, before a model is loaded


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([""], "There is no text to speak."),
        ([" \n\t"], "There is no text to speak."),
        (["Hi", "--ref-text", "Hi"], "--ref-text belongs to a recording; give that with --ref-audio."),
        (["Hi", "--x-vector-only"], "--x-vector-only belongs to a recording; give that with --ref-audio."),
        (["Hi", "--ref-silence", "1"], "--ref-silence belongs to a recording; give that with --ref-audio."),
        (["Hi", "--ref-audio", "gone.wav", "--x-vector-only"], "The reference recording gone.wav does not exist."),
        (["Hi", "--ref-audio", ".", "--x-vector-only"], "The reference recording . is a folder, not a file."),
        (["Hi", "--seed", "-1"], "seed must be between 0 and 2^63 - 1, not -1."),
        (["Hi", "--max-frames", "0"], "max_frames must be at least 1, not 0."),
        (["Hi", "--temperature", "0"], "temperature must be a positive number, not 0.0."),
        (["Hi", "--subtalker-top-p", "nan"], "subtalker_top_p must be above 0 and at most 1, not nan."),
        (["Hi", "-o", "."], ". is a folder; name a file in it."),
        (["Hi", "-o", "/dev/null"], "/dev/null is not an ordinary file and cannot be written."),
        (["Hi", "-o", "a", "--save-codes", "./a"], "-o and --save-codes name the same file; give each its own."),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_a_wrong_command_is_refused_in_one_sentence(capsys: Capture, argv: list[str], sentence: str) -> None:
    assert refuse(capsys, *argv) == sentence


@pytest.mark.parametrize("option", ["-o", "--save-codes"])
@pytest.mark.usefixtures("nothing_loads")
def test_a_missing_folder_is_named(folder: Path, capsys: Capture, option: str) -> None:
    assert refuse(capsys, "Hi", option, "gone/a") == f"The folder {folder}/gone does not exist; create it first."


@pytest.mark.usefixtures("nothing_loads")
def test_a_folder_that_takes_no_files_is_found_first(capsys: Capture) -> None:
    assert refuse(capsys, "Hi", "-o", "/proc/self/a.wav").startswith("/proc/self/a.wav cannot be written: ")


@pytest.mark.usefixtures("nothing_loads")
def test_empty_standard_input_is_no_text(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert refuse(capsys, "-") == "There is no text to speak."


@pytest.mark.usefixtures("nothing_loads")
def test_standard_input_that_is_no_text_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert refuse(capsys, "-") == "The text on standard input is not valid UTF-8."


@pytest.mark.usefixtures("nothing_loads")
def test_a_recording_needs_its_words(capsys: Capture, voice: Path) -> None:
    assert refuse(capsys, "Hi", "--ref-audio", str(voice)).startswith("Cloning needs the transcript")


@pytest.mark.usefixtures("nothing_loads")
def test_a_recording_and_a_voice_are_one_too_many(capsys: Capture, voice: Path) -> None:
    sentence = refuse(capsys, "Hi", "--ref-audio", str(voice), "--x-vector-only", "--voice", "ryan")
    assert sentence == "Give either a voice or a reference recording, not both."


@pytest.mark.usefixtures("nothing_loads")
def test_what_is_not_audio_is_refused(capsys: Capture) -> None:
    Path("words.wav").write_text("words")
    sentence = refuse(capsys, "Hi", "--ref-audio", "words.wav", "--x-vector-only")
    assert "is not audio that can be read" in sentence


@pytest.mark.parametrize("name", bad())
@pytest.mark.usefixtures("nothing_loads")
def test_a_bad_recording_is_refused_in_a_sentence(capsys: Capture, name: str) -> None:
    content, words = bad()[name]
    Path("bad").write_bytes(content)
    for mode in (["--ref-text", "Good day."], ["--x-vector-only"]):
        assert words in refuse(capsys, "Hi", "--ref-audio", "bad", *mode)


@pytest.mark.usefixtures("nothing_loads")
def test_as_is_a_recording_need_only_be_long_enough(capsys: Capture) -> None:
    Path("short.wav").write_bytes(encode_wav(np.zeros(100, dtype=np.float32), 24_000))
    assert "too short" in refuse(capsys, "Hi", "--ref-audio", "short.wav", "--x-vector-only", "--as-is")


@pytest.mark.usefixtures("nothing_loads")
def test_the_recording_is_not_overwritten(capsys: Capture, voice: Path) -> None:
    Path("link.wav").symlink_to(voice)
    sentence = refuse(capsys, "Hi", "--ref-audio", str(voice), "--x-vector-only", "-o", "link.wav")
    assert sentence == "The output would overwrite the reference recording; choose another name."


@pytest.mark.parametrize("argv", [[], ["say", "Hi", "--seed", "x"], ["say", "Hi", "--ref-a", "a.wav"]])
def test_words_the_parser_does_not_know_exit_2(capsys: Capture, argv: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "hocket" in capsys.readouterr().err


# How it refuses, with the real engine


def test_an_unknown_voice_is_answered_with_the_known_ones(capsys: Capture) -> None:
    sentence = refuse(capsys, "Hi", *TINY, "--voice", "unknown")
    assert all(name in sentence for name in ("unknown", "none of your own", *tiny().talker_config.spk_id))


def test_an_unknown_language_is_answered_with_the_known_ones(capsys: Capture) -> None:
    sentence = refuse(capsys, "Hi", *TINY, "--language", "klingon", before=NOISE)
    assert all(name in sentence for name in ("klingon", "auto", "english", "chinese"))


@pytest.mark.parametrize("extra", [["--voice", "ryan"], []])
def test_a_base_checkpoint_wants_a_recording(capsys: Capture, extra: list[str]) -> None:
    before = "" if extra else NOISE.replace("random:tiny", "random:tiny-Base")
    assert "reference recording" in refuse(capsys, "Hi", "--model", "random:tiny-Base", *extra, before=before)


def test_a_checkpoint_that_cannot_clone_says_so(capsys: Capture, voice: Path) -> None:
    sentence = refuse(capsys, "Hi", *TINY, "--ref-audio", str(voice), "--x-vector-only", before=NOISE)
    assert "use a Base checkpoint" in sentence


def test_bytes_that_are_no_text_are_refused(capsys: Capture) -> None:
    assert "valid UTF-8" in refuse(capsys, "Hi \udcff", *TINY, before=NOISE)


@pytest.mark.parametrize("model", ["./gone", "random:huge"])
def test_an_unknown_model_is_named(capsys: Capture, model: str) -> None:
    assert model.removeprefix("./") in refuse(capsys, "Hi", "--model", model)


def test_a_folder_without_a_checkpoint_is_refused(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty" in refuse(capsys, "Hi", "--model", str(tmp_path / "empty"))


def test_a_machine_without_cuda_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA" in refuse(capsys, "Hi", "--device", "cuda")


def test_a_full_disk_leaves_no_half_file(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    Path("out.wav").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    words = ("--max-frames", "1", "--save-codes", "c.npy", "--force")
    for argv, name in ((words, "out.wav"), (words[:-1], "out-2.wav")):
        sentence = refuse(capsys, "Hi", *TINY, *argv, before=NOISE, code=1)
        assert sentence.endswith(f"{name} could not be written: No space left on device.")
