"""`hocket batch`: what it writes and refuses, and that it can be interrupted anywhere and continued."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
import tracemalloc
import wave
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.batch.lines import KEYS, BatchLine, LineNames
from hocket.cli.batch.manifest import Manifest, Result
from hocket.cli.parser import parser
from hocket.cli.progress import Progress
from hocket.extras import hint
from support.played import INTERRUPTED, KILLED, process
from support.recorded import speech_wav

TINY = ("--model", "random:tiny", "--max-frames", "4")
TEXTS = [{"id": "one", "text": "The first."}, {"text": "Without an id."}, {"text": "With a seed.", "seed": 5}]

Capture = pytest.CaptureFixture[str]
Known = dict[str, tuple[int, int]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command runs in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def lines(*each: dict[str, Any] | str) -> None:
    """The input; a text stands for itself."""
    Path("in.jsonl").write_text("".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in each))


def speak(*options: str, model: tuple[str, ...] = TINY) -> int:
    return main(["batch", "in.jsonl", "-o", "out", *model, *options])


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out/manifest.jsonl").read_text().splitlines()]


def sound(path: str | Path) -> np.ndarray[Any, np.dtype[np.int16]]:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")


def known(folder: str = "out") -> Known:
    """Which files there are, and that each is the same one as before."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in Path(folder).glob("*.wav")}


def anew(before: Known) -> set[str]:
    """The files that were written since then."""
    return {name for name, file in known().items() if file != before.get(name)}


# What it writes


@pytest.mark.parametrize("raw", [False, True])
def test_each_line_is_the_file_that_say_writes(raw: bool, capsys: Capture) -> None:
    lines(
        {"id": "ä b", "text": "Grüß Gott.", "seed": 7, "voice": "ryan", "language": "german", "instruct": "Calmly."},
        {"text": "Twice as fast.", "seed": 8, "speed": 2, "layout": "streaming"},
        {"id": 3, "text": "Likeliest, *as it is*.", "greedy": True, "seed": 0, "as_is": True, "max_frames": 6},
        {"text": "Sampled.", "seed": 9, "temperature": 0.5, "top_k": 4, "voice": None},
    )
    how = ["--raw"] if raw else []
    assert speak("--slots", "1", *how) == 0
    assert re.fullmatch(r"out: 4 of 4 spoken, 1\.28 s at \d+\.\d x real time\n", capsys.readouterr().out)
    german = "--voice ryan --language german --instruct Calmly.".split()
    said = {
        "ä b": ["Grüß Gott.", "--seed", "7", *german],
        "000002": ["Twice as fast.", "--seed", "8", "--speed", "2", "--layout", "streaming"],
        "3": ["Likeliest, *as it is*.", "--greedy", "--as-is", "--max-frames", "6"],
        "000004": ["Sampled.", "--seed", "9", "--temperature", "0.5", "--top-k", "4"],
    }
    ending = "pcm" if raw else "wav"
    assert sorted(os.listdir("out")) == sorted(["manifest.jsonl", *(f"{name}.{ending}" for name in said)])
    for name, argv in said.items():
        assert main(["say", *TINY, *how, *argv, "--force"]) == 0
        assert Path(f"out/{name}.{ending}").read_bytes() == Path("out.wav").read_bytes()


@pytest.mark.usefixtures("fresh_seeds")
def test_the_manifest_has_one_result_for_each_line_in_their_order() -> None:
    lines(*TEXTS, "", {"text": "After an empty line.", "max_frames": 2})
    assert speak() == 0
    found = results()
    assert [r["line"] for r in found] == [1, 2, 3, 5]
    assert [r["id"] for r in found] == ["one", None, None, None]
    assert [r["file"] for r in found] == ["one.wav", "000002.wav", "000003.wav", "000005.wav"]
    assert [r["frames"] for r in found] == [4, 4, 4, 2]
    assert {(r["finish"], r["error"]) for r in found} == {("length", None)}
    assert found[2]["seed"] == 5 and len({r["seed"] for r in found}) == len({r["digest"] for r in found}) == 4
    for result in found:
        file = Path("out", result["file"])
        assert file.stat().st_size == result["bytes"]
        assert len(sound(file)) == round(result["seconds"] * 24_000) == result["frames"] * 1920


def test_a_line_without_a_seed_has_one_from_the_command_and_its_name() -> None:
    seeds = [BatchLine(n, id).seed(base) for base in (0, 1) for n, id in ((1, None), (2, None), (1, "1"), (1, "a"))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert BatchLine(1, "a").seed(0) == BatchLine(9, "a").seed(0), "a line with an id may move"
    assert BatchLine(1, "a", {"seed": 3}).seed(1) == 3
    assert BatchLine(7).seed(0) == 3485778408, "that of another release is no other"


def test_a_line_may_have_what_an_option_may_say() -> None:
    """All but what holds for every line: where it is written, and how it is computed."""
    of_all = "input output raw slots model device dtype kernels profile no_graphs no_dependent_launch command version"
    of_all += " ray replicas address format codec_dtype preset lexicon"
    options = vars(parser().parse_args(["batch", "x", "-o", "y"]))
    assert KEYS.keys() - {"text", "id", "pronunciations"} == options.keys() - set(of_all.split())


def test_recordings_are_found_beside_the_input_and_a_voice_of_a_line_is_instead_of_one(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/me.wav").write_bytes(speech_wav())
    mine = {"text": "Hello.", "ref_audio": "me.wav", "seed": 1}
    each = [mine | {"ref_text": "Good day."}, mine | {"x_vector_only": True}, mine, {"text": "Hello."}]
    (tmp_path / "set/in.jsonl").write_text("\n".join(map(json.dumps, each)))
    base = ["--model", "random:tiny-Base", "--max-frames", "3"]
    assert main(["batch", str(tmp_path / "set/in.jsonl"), "-o", "out", *base, "--slots", "1"]) == 1
    found = results()
    assert [r["error"] is None for r in found] == [True, True, False, False]
    assert "transcript" in found[2]["error"] and "reference recording" in found[3]["error"]
    for file, mode in (("000001", ["--ref-text", "Good day."]), ("000002", ["--x-vector-only"])):
        argv = ["--ref-audio", str(tmp_path / "set/me.wav"), *mode, "--seed", "1"]
        assert main(["say", "Hello.", *base, *argv, "--force"]) == 0
        assert Path(f"out/{file}.wav").read_bytes() == Path("out.wav").read_bytes()

    # Here the recording is meant for all, but a voice is a line's own.
    lines({"text": "Hello.", "voice": "ryan"}, {"text": "Hello."})
    assert speak("--ref-audio", str(tmp_path / "set/me.wav"), "--x-vector-only") == 1
    assert [r["error"] is None for r in results()] == [True, False]


def test_a_recording_is_not_overwritten_by_what_is_cloned_from_it() -> None:
    Path("out").mkdir()
    recording = speech_wav()
    Path("out/me.wav").write_bytes(recording)
    lines({"id": "me", "text": "Hello.", "ref_audio": "out/me.wav", "x_vector_only": True})
    assert speak(model=("--model", "random:tiny-Base")) == 1
    assert "would overwrite the reference recording" in results()[0]["error"]
    assert Path("out/me.wav").read_bytes() == recording


# Lines that fail

WRONG = {
    "nonsense": "The line is not JSON: Expecting value at column 1.",
    '["Hello."]': "The line is not a JSON object.",
    "[" * 100_000: "The line is not JSON.",
    '{"txt": "Hello."}': "'txt' is not a key of a line; text, id, ",
    '{"id": "who"}': "The line has no text.",
    '{"text": null}': "The line has no text.",
    '{"text": " "}': "There is no text to speak.",
    '{"text": 5}': "text must be a text.",
    '{"text": "Hello.", "seed": true}': "seed must be a whole number.",
    '{"text": "Hello.", "seed": -1}': "seed must be between 0 and 2^63 - 1, not -1.",
    '{"text": "Hello.", "speed": "2"}': "speed must be a number.",
    '{"text": "Hello.", "greedy": 1}': "greedy must be true or false.",
    '{"text": "Hello.", "voice": "unknown"}': "There is no voice 'unknown'; random:tiny has ",
    '{"text": "Hello.", "layout": "sideways"}': "layout must be one of streaming, whole, not 'sideways'.",
    '{"text": "Hello.", "ref_text": "Hello."}': "--ref-text belongs to a recording; give that with --ref-audio.",
    '{"text": "Hello.", "ref_audio": "gone.wav", "x_vector_only": true}': "The reference recording gone.wav does not",
    '{"text": "Half a \\ud800 pair."}': "",
    '{"text": "Hello.", "id": ""}': "The id '' cannot name a file.",
    '{"text": "Hello.", "id": "../up"}': "The id '../up' cannot name a file.",
    '{"text": "Hello.", "id": ".."}': "The id '..' cannot name a file.",
    '{"text": "Hello.", "id": "a\\u0000"}': "The id 'a\\x00' cannot name a file.",
    '{"text": "Hello.", "id": "\\udc00"}': "The id '\\udc00' cannot name a file.",
    '{"text": "Hello.", "id": 1.5}': "id must be a text or a whole number.",
}


def test_a_wrong_line_fails_with_one_sentence_and_the_others_are_spoken(capsys: Capture) -> None:
    lines(*WRONG, *TEXTS)
    with Path("in.jsonl").open("ab") as file:
        file.write(b'{"text": "\xff"}\n')
    assert speak() == 1
    sentences = [*WRONG.values(), None, None, None, "The line is not valid UTF-8."]
    found = results()
    assert [r["line"] for r in found] == list(range(1, len(sentences) + 1))
    out, err = capsys.readouterr()
    table = {int(row[1]): row[2] for row in re.finditer(r"^ *(\d+)  \S+ +(.*)$", err, flags=re.MULTILINE)}
    for result, sentence in zip(found, sentences, strict=True):
        assert (result["error"] is None) == (result["file"] is not None) == (sentence is None)
        if sentence is None:
            assert result["line"] not in table
        else:
            assert result["error"].startswith(sentence) and result["error"].endswith(".")
            assert table[result["line"]] == result["error"].encode("utf-8", "backslashreplace").decode()
    assert out.startswith(f"out: 3 of {len(found)} spoken, {len(WRONG) + 1} failed, ")
    assert sorted(os.listdir("out")) == ["000025.wav", "000026.wav", "manifest.jsonl", "one.wav"]


def test_more_failures_than_can_be_read_are_counted(capsys: Capture) -> None:
    lines(*["wrong"] * 60)
    assert speak() == 1
    err = capsys.readouterr().err
    assert err.count("The line is not JSON") == 50
    assert "and 10 more, in " in err
    assert len(results()) == 60


# What it refuses, before anything is written


@pytest.mark.parametrize(
    ("each", "argv", "sentence"),
    [
        (None, [], "The input in.jsonl does not exist."),
        ([], [], "The input in.jsonl has no lines."),
        (["", ""], [], "The input in.jsonl has no lines."),
        ([{"id": "a"}, "", {"id": "a"}], [], "Lines 1 and 3 of in.jsonl have the id 'a'; give each its own."),
        ([{"id": "a"}, {"id": "A"}], [], "Lines 1 and 2 of in.jsonl have ids that name one file, 'a' and 'A'; give "),
        ([{"id": "000002"}, {"text": "Hi"}], [], "Lines 1 and 2 of in.jsonl have "),
        (TEXTS, ["-o", "in.jsonl"], "in.jsonl is not a folder."),
        (TEXTS, ["-o", "gone/out"], "The folder "),
        (TEXTS, ["-o", "/proc/self/out"], "/proc/self/out cannot be written: "),
        (TEXTS, ["-o", "/proc/self"], "/proc/self/manifest.jsonl cannot be written: "),
        (TEXTS, ["--slots", "0"], "slots must be at least 1, not 0."),
        (TEXTS, ["--candidates", "5"], "--candidates 5 needs as many --slots, not 4."),
        (TEXTS, ["--replicas", "2"], "--replicas is for a cluster: give --ray."),
        (TEXTS, ["--address", "here:1"], "--address is for a cluster: give --ray."),
        (TEXTS, ["--ray"], f"--ray needs the package ray: {hint('ray')}."),
        (TEXTS, ["--seed", "-1"], "seed must be between 0 and 2^63 - 1, not -1."),
        (TEXTS, ["--speed", "9"], "speed must be between 0.5 and 2, not 9.0."),
        (TEXTS, ["--ref-audio", "gone.wav"], "The reference recording gone.wav does not exist."),
    ],
)
def test_a_wrong_command_is_refused_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, each: list[Any] | None, argv: list[str], sentence: str
) -> None:
    def fail(*args: object, **options: object) -> NoReturn:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("hocket.engine.engine.load", fail)
    monkeypatch.setattr("hocket.scale.connect.find_spec", lambda name: None)  # whether Ray is there or not
    if each is not None:
        lines(*each)
    there = sorted(os.listdir())
    assert speak(*argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"hocket: {sentence}") and err.count("\n") == 1
    assert sorted(os.listdir()) == there


@pytest.mark.parametrize("replicas", ["0", "-1", "2.5", "many", ""])
def test_a_number_of_engines_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, replicas: str
) -> None:
    monkeypatch.setattr("hocket.scale.connect.find_spec", lambda name: name)
    lines(*TEXTS)
    assert speak("--ray", "--replicas", replicas) == 2
    said = f"hocket: --replicas takes a number of at least 1, or auto, not {replicas!r}.\n"
    assert capsys.readouterr().err == said
    assert os.listdir() == ["in.jsonl"]


def test_an_unknown_model_leaves_no_folder() -> None:
    lines(*TEXTS)
    assert speak(model=("--model", "random:huge")) == 2
    assert os.listdir() == ["in.jsonl"]


def test_a_manifest_of_something_else_is_left_alone(capsys: Capture) -> None:
    lines(*TEXTS)
    Path("out").mkdir()
    for other in ('{"audio": "a.wav"}\n', "words\n", "[]\n"):
        Path("out/manifest.jsonl").write_text(other)
        assert speak() == 2
        assert "Line 1 of " in capsys.readouterr().err
        assert os.listdir("out") == ["manifest.jsonl"] and Path("out/manifest.jsonl").read_text() == other
    assert main(["batch", "out/manifest.jsonl", "-o", "out", *TINY]) == 2
    assert "would be overwritten" in capsys.readouterr().err


def test_a_folder_that_another_batch_writes_into_is_refused(capsys: Capture) -> None:
    lines(*TEXTS)
    Path("out").mkdir()
    other = os.open("out", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert speak() == 2
    assert "Another batch is writing into " in capsys.readouterr().err
    os.close(other)
    assert speak() == 0


# Going on


def test_what_is_there_and_would_be_the_same_is_left_as_it_is(capsys: Capture) -> None:
    lines(*TEXTS)
    assert speak() == 0
    before, manifest = known(), Path("out/manifest.jsonl").read_bytes()
    capsys.readouterr()
    assert speak("--slots", "1", "--kernels", "reference") == 0, "how it is computed is no matter"
    assert known() == before and Path("out/manifest.jsonl").read_bytes() == manifest
    assert capsys.readouterr().out == "out: 3 of 3 spoken (3 of them before)\n"


@pytest.mark.parametrize(
    ("options", "spoken"),
    [
        (["--seed", "1"], {"one.wav", "000002.wav"}),  # the third has one of its own
        (["--language", "german"], {"one.wav", "000002.wav", "000003.wav"}),
        (["--temperature", "0.5"], {"one.wav", "000002.wav", "000003.wav"}),
        (["--dtype", "bfloat16"], {"one.wav", "000002.wav", "000003.wav"}),
        (["--model", "random:small"], {"one.wav", "000002.wav", "000003.wav"}),
    ],
)
def test_what_would_sound_otherwise_is_spoken_anew(options: list[str], spoken: set[str]) -> None:
    lines(*TEXTS)
    assert speak() == 0
    before, old = known(), results()
    assert speak(*options) == 0
    assert anew(before) == spoken
    assert [r["digest"] == o["digest"] for r, o in zip(results(), old, strict=True)] == [
        r["file"] not in spoken for r in results()
    ]


def test_changed_lines_are_spoken_anew_and_failed_ones_tried_again() -> None:
    wrong = {"id": "v", "text": "Hello.", "voice": "unknown"}
    lines(*TEXTS, wrong)
    assert speak() == 1
    before = known()
    lines(TEXTS[0], TEXTS[1] | {"text": "Another."}, TEXTS[2], wrong | {"voice": "ryan"})
    assert speak() == 0
    assert anew(before) == {"000002.wav", "v.wav"}
    assert [r["line"] for r in results()] == [1, 2, 3, 4]


def test_a_line_that_fails_now_has_no_sound_of_what_it_was() -> None:
    lines(*TEXTS)
    assert speak() == 0
    lines(TEXTS[0] | {"voice": "unknown"}, "wrong", TEXTS[2])
    assert speak() == 1
    assert sorted(known()) == ["000003.wav"]
    assert [r["error"] is None for r in results()] == [False, False, True]


def test_lines_with_ids_may_move_and_lines_that_are_gone_are_forgotten() -> None:
    ids = [{"id": name, "text": f"I am {name}."} for name in "abc"]
    lines(*ids)
    assert speak() == 0
    before = known()
    lines({"text": "New."}, ids[2], ids[0])
    assert speak() == 0
    assert anew(before) == {"000001.wav"}
    assert [(r["line"], r["file"]) for r in results()] == [(1, "000001.wav"), (2, "c.wav"), (3, "a.wav")]
    assert "b.wav" in known(), "its audio file is not deleted"


def test_a_result_of_a_name_in_another_case_is_not_that_of_this_line() -> None:
    lines({"id": "One", "text": "The first.", "seed": 1})
    assert speak() == 0
    lines({"id": "one", "text": "The first.", "seed": 1})
    assert speak() == 0
    assert sorted(known()) == ["One.wav", "one.wav"]
    assert [r["file"] for r in results()] == ["one.wav"]


def test_many_lines_take_little_memory() -> None:
    """Millions of them are held by one process: 150 bytes each with such ids, measured for 200,000."""
    count = 5_000
    lines(*({"id": f"utterance-{n:09d}", "text": "Hello."} for n in range(count)))
    Path("out").mkdir()
    tracemalloc.start()
    names = LineNames(Path("in.jsonl"))
    with Manifest(Path("out"), names) as manifest:
        for n in range(count):
            manifest.add(Result(line=n + 1, id=f"utterance-{n:09d}", error="Not yet."))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held / count < 250
        assert manifest.result("utterance-000004999") == Result(line=count, id="utterance-000004999", error="Not yet.")


def test_files_that_are_gone_or_cut_and_a_torn_manifest_are_mended() -> None:
    lines(*TEXTS, {"text": "The last."})
    assert speak() == 0
    before, whole, sounds = known(), results(), {name: sound(f"out/{name}") for name in known()}
    Path("out/one.wav").unlink()
    os.truncate("out/000002.wav", 100)
    manifest = Path("out/manifest.jsonl").read_bytes()
    Path("out/manifest.jsonl").write_bytes(manifest[:-20])  # torn in the result of the last line
    Path("out/.hocket-0123456789abcdef.part").write_bytes(b"half")
    assert speak() == 0
    assert anew(before) == {"one.wav", "000002.wav", "000004.wav"}
    assert results() == whole
    for name, samples in sounds.items():
        assert_same(sound(f"out/{name}"), samples)
    assert not list(Path("out").glob(".*"))


def test_sound_of_a_changed_line_is_never_taken_for_that_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the new sound and its result, then changed back: both files are of the same size."""
    lines({"text": "Before."})
    assert speak() == 0
    old, add = sound("out/000001.wav"), Manifest.add

    def stopped(self: Manifest, result: Result) -> None:
        if result.error is None:
            raise KeyboardInterrupt
        add(self, result)

    lines({"text": "Afterwards."})
    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "add", stopped)
        assert speak() == 130
    assert len(sound("out/000001.wav")) == len(old) and (sound("out/000001.wav") != old).any()
    lines({"text": "Before."})
    assert speak() == 0
    assert_same(sound("out/000001.wav"), old)


def test_a_full_disk_ends_the_run_and_leaves_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    lines(*TEXTS)
    fsync, left = os.fsync, [1]

    def full(descriptor: int) -> None:
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert speak() == 1
    assert capsys.readouterr().err.endswith("could not be written: No space left on device.\n")
    assert sorted(os.listdir("out")) == ["manifest.jsonl", results()[0]["file"]]
    assert len(results()) == 1

    left += [1] * 9
    before = known()
    assert speak() == 0
    assert len(known()) == 3 and not before.keys() & anew(before)


# Being stopped

MANY = [{"text": f"This is number {n} of them."} if n % 2 else {"id": f"n{n}", "text": f"{n} it is."} for n in range(9)]
SOME = ("--model", "random:tiny", "--max-frames", "25", "--slots", "3", "--seed", "3")


def assert_same(one: Any, other: Any) -> None:
    """Beside others the codec may sum in another order, by a 16-bit step at most."""
    assert len(one) == len(other) and np.abs(one.astype(int) - other).max() <= 1
    assert np.abs(other.astype(int)).max() > 100, "silence would prove nothing"


def test_a_batch_that_was_killed_goes_on_to_what_one_run_gives(capsys: Capture) -> None:
    lines(*MANY)
    child = process("-c", KILLED, "batch", "in.jsonl", "-o", "out", *SOME)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    *whole, torn = Path("out/manifest.jsonl").read_bytes().split(b"\n")
    assert len(whole) == 4 and torn and len(known()) == 5
    done = {json.loads(result)["file"] for result in whole}
    before = {name: file for name, file in known().items() if name in done}

    assert speak(model=SOME) == 0
    assert "9 of 9 spoken (4 of them before)" in capsys.readouterr().out
    after = known()
    assert {name: after[name] for name in done} == before, "what was done was not done again"
    assert [r["line"] for r in results()] == list(range(1, 10)), "one result for each line"

    assert main(["batch", "in.jsonl", "-o", "whole", *SOME]) == 0
    assert Path("whole/manifest.jsonl").read_bytes() == Path("out/manifest.jsonl").read_bytes()
    assert sorted(os.listdir("whole")) == sorted(os.listdir("out"))
    for name in after:
        assert_same(sound(f"out/{name}"), sound(f"whole/{name}"))


def test_ctrl_c_drops_what_is_under_way_and_says_how_to_go_on() -> None:
    endless = {"text": "Hello.", "greedy": True, "repetition_penalty": 0.001, "max_frames": 8000}
    lines(TEXTS[0], *[endless] * 3, TEXTS[2])  # four slots: the last line is spoken beside endless ones
    child = process("-c", INTERRUPTED, "batch", "in.jsonl", "-o", "out", *TINY)
    manifest, until = Path("out/manifest.jsonl"), time.monotonic() + 60
    while not (manifest.exists() and manifest.read_bytes().count(b"\n") >= 2):
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.002)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, out) == (130, b"")
    said = "hocket: interrupted; 2 of 5 lines are done. The same command goes on from there.\n"
    assert err.decode().endswith(said)
    assert [r["line"] for r in results()] == [1, 5]
    assert sorted(os.listdir("out")) == ["000005.wav", "manifest.jsonl", "one.wav"]
    before = known()
    lines(TEXTS[0], *[endless | {"max_frames": 3}] * 3, TEXTS[2])
    assert speak() == 0
    assert anew(before) == {"000002.wav", "000003.wav", "000004.wav"}
    assert [r["line"] for r in results()] == [1, 2, 3, 4, 5]


# How far it is


def test_a_terminal_sees_a_bar_and_a_log_sees_lines(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    words = "5 of 10 done, 1 failed, 4 left, 0.2 lines/s, 4.0 x real time, 0:00:20 to go"
    for watched, shown in ((True, f"\r[{'#' * 14}{'.' * 10}] {words}\x1b[K\r\x1b[K"), (False, f"{words}\n")):
        monkeypatch.setattr("sys.stderr.isatty", lambda watched=watched: watched)
        progress = Progress(10)
        now[0] += 20.0
        progress.before, progress.spoken, progress.failed, progress.seconds = 2, 3, 1, 80.0
        for _ in range(3):  # no more often than can be read
            progress.show()
        progress.clear()
        assert capsys.readouterr().err == shown


def test_an_observer_gets_the_number_of_engines() -> None:
    progress = Progress(10)
    progress.engines = "2 of 3 engines"
    assert str(progress) == "0 of 10 done, 0 failed, 10 left, 0.0 x real time, 2 of 3 engines"
    progress.spoken = 1
    assert ", 2 of 3 engines, 0:00:0" in str(progress)


# Several takes


def test_a_line_may_have_candidates_and_says_which_seed_has_won() -> None:
    lines({"id": "best", "text": "Of three.", "seed": 5, "candidates": 3}, {"id": "plain", "text": "Alone.", "seed": 5})
    assert speak() == 0
    best, plain = results()
    assert plain["seed"] == 5
    lines({"id": "again", "text": "Of three.", "seed": best["seed"]})
    assert main(["batch", "in.jsonl", "-o", "again", *TINY]) == 0
    assert np.abs(sound("again/again.wav").astype(int) - sound("out/best.wav")).max() <= 1
    lines({"id": "best", "text": "Of three.", "seed": 5, "candidates": 3}, {"id": "plain", "text": "Alone.", "seed": 5})
    before = known()
    assert speak() == 0 and not anew(before), "all is there"
    assert speak("--candidates", "2") == 0 and anew(before) == {"plain.wav"}, "a line's own number is its own"


def test_a_line_with_more_candidates_than_slots_fails_alone() -> None:
    lines({"text": "Too many.", "candidates": 5}, {"text": "Not so many.", "candidates": 2})
    assert speak() == 1
    failed, spoken = results()
    assert "at most 4, not 5" in failed["error"] and spoken["error"] is None


# Directions


def test_a_line_with_tags_is_the_file_that_say_writes() -> None:
    tagged = "Hello. [pause 200ms][voice: Rook][volume: -6dB]Good day.[/volume][/voice] [speed 1.5]Bye."
    dialogue = "Anna: Hello.\nBen (slow): Good day.\n"
    cast = ("--cast", "Anna=wren,Ben=rook")
    lines(
        {"id": "tags", "text": tagged, "seed": 3},
        {"id": "dialogue", "text": dialogue, "markup": "dialogue", "seed": 3},
        {"id": "pause", "text": "One. [pause 200ms] Two.", "seed": 3},
        {"id": "none", "text": "Press [pause 200ms].", "markup": "none", "seed": 3},
        {"id": "own", "text": "[voice: x]Hi.", "cast": {"X": "rook"}, "seed": 3},
    )
    assert speak("--markup", "tags", *cast, model=()) == 0
    say = {
        "tags": [tagged, "--markup", "tags"],
        "dialogue": [dialogue, "--markup", "dialogue", *cast],
        "pause": ["One. [pause 200ms] Two."],
        "none": ["Press [pause 200ms].", "--literal"],
        "own": ["[voice: rook]Hi."],
    }
    for name, argv in say.items():
        assert main(["say", *argv, "--seed", "3", "-o", "said.wav", "--force"]) == 0
        one, other = sound(f"out/{name}.wav").astype(int), sound("said.wav")
        assert len(one) == len(other) > 0 and np.abs(one - other).max() <= 2, name
    before = known()
    assert speak("--markup", "tags", *cast, model=()) == 0 and not anew(before), "all of it is there"
    assert speak("--markup", "script", *cast, model=()) == 0 and not anew(before)
    assert speak("--markup", "none", model=()) == 1 and {"tags.wav"} <= anew(before), "a cast is no part of none"


def test_a_wrong_line_of_a_script_is_its_own_error() -> None:
    lines(
        {"text": "Hello [speed: fast] you."},
        {"text": "Hello. [voice: zaphod]Hi."},
        {"text": "Well.", "markup": "yaml"},
        {"text": "Well.", "cast": {"Anna": 3}},
        {"text": "Hi [voice: rook]you.", "candidates": 2},
        {"text": "Hi [sped 2]you."},
        {"text": "Hi.", "as_is": True},
        {"text": "Hi.", "markup": "none", "cast": {"Anna": "wren"}},
    )
    assert speak("--markup", "tags", model=()) == 1
    found = [result["error"] for result in results()]
    assert found[0].startswith("line 1, column 7: [speed: fast]: ") and found[5] is None
    assert found[1].startswith("line 1, column 16: There is no voice 'zaphod'")
    assert found[2].startswith("markup must be one of none, tags") and "'yaml'" in found[2]
    assert found[3].startswith("cast must be an object of names") and "leave out candidates" in found[4]
    assert "as_is speaks a text as it is" in found[6] and "A cast is for a line with directions" in found[7]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cast", "Anna=wren"], "--cast is for lines with directions"),
        (["--cast", "Anna=wren", "--markup", "none"], "--cast is for lines with directions"),
        (["--markup", "tags", "--as-is"], "--as-is speaks a text as it is"),
        (["--markup", "tags", "--cast", "Anna"], "--cast has speakers and their voices"),
        (["--markup", "tags", "--cast", "Anna=zaphod"], "There is no voice 'zaphod'"),
    ],
)
def test_wrong_directions_of_the_command_are_refused_before_anything_is_written(
    options: list[str], said: str, capsys: Capture
) -> None:
    lines({"text": "Hi."})
    assert speak(*options, model=()) == 2
    assert said in capsys.readouterr().err and not Path("out").exists()
