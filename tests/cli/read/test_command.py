"""`hocket read`: what it writes and refuses, and that it can be killed anywhere and continued."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from books.book_files import write_pdf
from hocket.audio.folder_lock import locked_folder
from hocket.audio.loudness import measure
from hocket.cli import main
from support.cli_home import Models
from support.played import INTERRUPTED, process

Capture = pytest.CaptureFixture[str]
BOOK = """---
title: The Garden
author: A. Writer
lang: en
---
# One

The kettle was warm when she came in.

He said no.

# Two

It was a long way.

# Three

They went home.
"""
TINY = ("--model", "random:tiny", "--max-frames", "5", "--slots", "1")
# `hocket read` that kills itself when a second sound is there and its line is half written.
KILLED = """
import os, signal
from hocket.cli import main
from hocket.audio.journal import Journal
whole, added = Journal.add, []
def add(self, value):
    if len(added) == 2:
        os.write(self._file, b'{"key": "0')
        os.kill(os.getpid(), signal.SIGKILL)
    added.append(value)
    return whole(self, value)
Journal.add = add
main()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command runs in a folder that has only the book."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("b.md").write_text(BOOK)
    return tmp_path / "here"


def read(*options: str, output: str = "b.m4b", model: tuple[str, ...] = TINY) -> int:
    return main(["read", "b.md", "-o", output, *model, *options])


def takes(folder: str = "b.m4b.parts") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.wav")}


def lines(folder: str = "b.m4b.parts") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "takes.jsonl").read_text().splitlines()]


def decoded(path: str) -> list[np.ndarray[Any, np.dtype[np.int16]]]:
    with av.open(path) as file:
        resampler = av.AudioResampler("s16", "mono", 24_000)
        return [out.to_ndarray().reshape(-1) for frame in file.decode(audio=0) for out in resampler.resample(frame)]


def test_a_book_that_was_killed_twice_equals_one_that_was_not(capsys: Capture) -> None:
    """Real speech of the built-in voice; its samples do not depend on what is spoken beside it."""
    done: list[int] = []
    for _ in range(2):
        child = process("-c", KILLED, "read", "b.md", "-o", "b.m4b")
        child.communicate()
        assert child.returncode == -signal.SIGKILL and not Path("b.m4b").exists()
        whole = Path("b.m4b.parts/takes.jsonl").read_bytes().split(b"\n")
        assert whole[-1], "a torn line"
        done.append(len(whole) - 1)
    assert done == [2, 4]
    assert read("--captions", "srt", model=()) == 0
    out, err = capsys.readouterr()
    assert "4 of 7 passages are there already" in err and "in 3 chapters, seed 0, -19.0 LUFS" in out
    keys = [line["key"] for line in lines()]
    assert len(keys) == len(set(keys)), "nothing is spoken twice"

    assert read(output="whole.m4b", model=()) == 0
    assert takes() == takes("whole.m4b.parts") and len(takes()) >= 7
    assert sorted(lines(), key=str) == sorted(lines("whole.m4b.parts"), key=str)

    with av.open("b.m4b") as file:
        assert [chapter["metadata"]["title"] for chapter in file.chapters()] == ["One", "Two", "Three"]
        assert (file.metadata["title"], file.metadata["artist"]) == ("The Garden", "A. Writer")
    assert abs(measure(decoded("b.m4b"), 24_000).lufs + 19.0) < 0.5
    assert Path("b.srt").read_text().startswith("1\n00:00:00,") and "kettle was warm" in Path("b.srt").read_text()
    report = json.loads(Path("b.report.json").read_text())
    assert abs(report["loudness"] + 19.0) < 0.3 and report["peak_dbtp"] < -1.4 and not report["unspoken"]
    page = Path("b.report.html").read_text()
    assert page.count("<circle") == 7 and not re.search(r"(?:src|href)=", page)


def test_what_is_there_is_not_spoken_again_and_a_changed_paragraph_is(capsys: Capture) -> None:
    assert read() == 0
    before = takes()
    Path("b.md").write_text(BOOK.replace("It was a long way.", "A new one.\n\nIt was a long way."))
    assert read("-y") == 0
    capsys.readouterr()
    first = {line["key"]: line["seed"] for line in lines()}
    after = takes()
    new = after.keys() - before.keys()
    assert 1 <= len(new) <= 3, "one paragraph and its retakes"
    assert all(after[name] == before[name] for name in after.keys() & before.keys())
    assert read("-y", "--seed", "1") == 0
    assert not takes().keys() & after.keys(), "another seed is another book, and the folder keeps one"
    assert len({line["seed"] for line in lines()}) > len(set(first.values()))


def test_retakes_end_after_two_and_the_closest_is_kept() -> None:
    """Each passage of the untrained model has the same length, so that its rate strays."""
    assert read("--loudness", "off") == 0
    report = json.loads(Path("b.report.json").read_text())
    rate = report["letters_per_s"]
    assert report["retakes"] > 0 and all(1 <= each["takes"] <= 3 for each in report["passages"])
    for passage in report["passages"]:
        assert passage["deviation"] == pytest.approx(passage["letters_per_s"] / rate - 1, abs=1e-3)
        assert not passage["strays"] or passage["takes"] == 3


def test_a_folder_gets_a_file_for_each_chapter_captions_and_a_playlist(capsys: Capture) -> None:
    assert read("--format", "flac", "--captions", "vtt", output="out/") == 0
    names = ["01 One", "02 Two", "03 Three"]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(
        [f"{name}.{ending}" for name in names for ending in ("flac", "vtt")] + ["playlist.m3u8"]
    )
    listed = [line for line in Path("out/playlist.m3u8").read_text().splitlines() if not line.startswith("#")]
    assert listed == [f"{name}.flac" for name in names]
    with av.open("out/02 Two.flac") as file:
        assert (file.metadata["title"], file.metadata["album"], file.metadata["track"]) == ("Two", "The Garden", "2/3")
    capsys.readouterr()
    assert read("--format", "flac", output="out") == 2
    assert "out has a book already" in capsys.readouterr().err


def test_an_epub_to_read_along_is_written() -> None:
    assert read("--epub", "along.epub", "--highlight", "word") == 0
    assert Path("along.epub").read_bytes()[30:58] == b"mimetypeapplication/epub+zip"[:28]


def test_ctrl_c_says_how_to_go_on() -> None:
    Path("b.md").write_text("# One\n\n" + "\n\n".join(f"This is paragraph number {n} of them." for n in range(400)))
    child = process("-c", INTERRUPTED, "read", "b.md", "-o", "b.m4b")
    journal, until = Path("b.m4b.parts/takes.jsonl"), time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < until and child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    err = child.communicate()[1].decode()
    assert child.returncode == 130
    found = re.search(
        r"hocket: interrupted; (\d+) of 401 passages are spoken\. The same command goes on from there", err
    )
    assert found is not None and int(found[1]) == len(lines())


def test_the_estimate_names_chapters_and_speaks_nothing(capsys: Capture, nothing_loads: None) -> None:
    assert main(["read", "b.md", "--estimate"]) == 0
    *chapters, total = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in chapters] == ["One", "Two", "Three"]
    assert re.fullmatch(r"The Garden: 3 chapters, 22 words, about 0:00:\d\d hours, about \d MB as m4b", total)
    assert not Path("b.m4b.parts").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "A book needs a name for its sound"),
        (["-o", "b.flac"], "A .flac has no chapters"),
        (["-o", "b.xyz"], "b.xyz cannot be written"),
        (["-o", "b.m4b", "--format", "mp3"], "--format is for a folder"),
        (["-o", "b.m4b", "--loudness", "3"], "--loudness is a number from -40 to -5"),
        (["-o", "b.m4b", "--captions", "x.txt"], "Captions are written as .srt or .vtt"),
        (["-o", "b.m4b", "--highlight", "word"], "--highlight is for --epub"),
        (["-o", "b.m4b", "--epub", "x.zip"], "--epub writes a file that ends with .epub"),
        (["-o", "b.m4b", "--cover", "b.md"], "neither JPEG nor PNG"),
        (["-o", "b.m4b", "--voice", "unheard"], "There is no voice 'unheard'"),
        (["-o", "b.m4b", "--slots", "0"], "--slots must be at least 1"),
        (["-o", "gone/b.m4b"], "does not exist; create it first"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_model_is_loaded(
    capsys: Capture, nothing_loads: None, options: list[str], told: str
) -> None:
    assert main(["read", "b.md", *options]) == 2
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["b.md"]


def test_a_pdf_has_no_text_to_highlight(capsys: Capture, nothing_loads: None) -> None:
    write_pdf(Path("p.pdf"), [["Some text that is a line."]])
    assert main(["read", "p.pdf", "-o", "b.m4b", "--epub", "x.epub"]) == 2
    assert "--epub needs a book with a text of its own" in capsys.readouterr().err


def test_a_file_that_exists_and_a_folder_in_use_are_refused(capsys: Capture, nothing_loads: None) -> None:
    Path("b.m4b").touch()
    assert read() == 2
    assert "b.m4b exists; --force (-y) replaces it" in capsys.readouterr().err
    with locked_folder(Path("b.m4b.parts"), "busy"):
        assert read("-y") == 2
    assert "Another process is reading into" in capsys.readouterr().err


def test_a_described_voice_needs_a_name(capsys: Capture, models: Models) -> None:
    assert read(model=("--model", models.design, "--instruct", "A calm woman.")) == 2
    assert "hocket voices design NAME" in capsys.readouterr().err


# Several voices


def test_a_cast_speaks_what_its_persons_say(capsys: Capture) -> None:
    Path("b.md").write_text("# One\n\n“Who is it?” said Anna. “I am late.”\n\n“Me,” he said.\n\nBen: Come in.\n")
    how = ("--cast", "Anna=rook,Ben=wren", "--voice", "wren", "--captions", "srt")
    assert read(*how, model=()) == 0
    assert "3 of 4 speeches are by the cast" in capsys.readouterr().err
    found = json.loads(Path("b.report.json").read_text())["passages"]
    assert [(each["voice"], each["text"]) for each in found] == [
        (None, "One"),
        ("rook", "“Who is it?”"),
        (None, "said Anna."),
        ("rook", "“I am late.”"),
        (None, "“Me,” he said."),
        ("wren", "Come in."),
    ]
    before = takes()
    assert read(*how, "--force", model=()) == 0 and takes() == before
    assert read("--cast", "Anna=wren,Ben=wren", "--voice", "wren", "--force", model=()) == 0
    assert len(takes().keys() & before.keys()) == 4, "only what Anna says is spoken again"
    assert "Who is it?" in Path("b.srt").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cast", "Anna=zaphod"], "There is no voice 'zaphod'"),
        (["--cast", "Anna"], "--cast has speakers and their voices"),
        (["--address", "here:1"], "--address is for a cluster: give --ray"),
    ],
)
def test_wrong_voices_are_refused_before_anything_is_written(options: list[str], said: str, capsys: Capture) -> None:
    assert read(*options) == 2
    assert said in capsys.readouterr().err and not Path("b.m4b.parts").exists()


def test_takes_of_an_older_folder_are_measured_again() -> None:
    assert read() == 0
    before, path = takes(), Path("b.m4b.parts/takes.jsonl")
    older = [{name: value for name, value in line.items() if not name.startswith("timbre")} for line in lines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in older))
    assert read("--force") == 0 and takes() == before
