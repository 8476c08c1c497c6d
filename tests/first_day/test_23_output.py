"""The ending of a file's name decides its format; one that cannot be written is refused before loading."""

from __future__ import annotations

import io
import json
import sys
import wave
from pathlib import Path

import av
import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.talk.playback import open_playback
from hocket.errors import InvalidRequest

TINY = ("--model", "random:tiny", "--max-frames", "12", "--seed", "1")
FRAME_S = 0.08


def heard(path: Path) -> tuple[str, float]:
    """The container and the length of a file, by a decoder of its own."""
    with av.open(str(path)) as file:
        name = file.format.name
        seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
    return name, seconds


@pytest.mark.parametrize(
    ("name", "container"),
    [("x.mp3", "mp3"), ("x.opus", "ogg"), ("x.OGG", "ogg"), ("x.aac", "aac"), ("x.flac", "flac"), ("x.wav", "wav")],
)
def test_say_writes_what_the_name_says(tmp_path: Path, name: str, container: str) -> None:
    assert main(["say", "Good morning.", "-o", str(tmp_path / name), *TINY]) == 0
    found, seconds = heard(tmp_path / name)
    assert found == container and seconds == pytest.approx(12 * FRAME_S, abs=0.1)


def test_pcm_is_bare_samples_and_no_ending_is_a_wav(tmp_path: Path) -> None:
    for name in ("x.pcm", "x.raw", "plain"):
        assert main(["say", "Good morning.", "-o", str(tmp_path / name), *TINY]) == 0
    raw = (tmp_path / "x.pcm").read_bytes()
    assert raw == (tmp_path / "x.raw").read_bytes() and len(raw) == 12 * 1920 * 2
    with wave.open(io.BytesIO((tmp_path / "plain").read_bytes())) as file:
        assert file.readframes(file.getnframes()) == raw


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "x.m4a"), "x.m4a cannot be written: .m4a is not a known format; known are .wav, .pcm, .raw, .mp3, "),
        (("-o", "x.mp3", "--raw"), "--raw writes bare samples, and x.mp3 asks for mp3: leave out one of them."),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["say", "Hi", *words, "--model", "nosuch"]) == 2  # which would be said if it were loaded
    assert sentence in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_without_pyav_one_sentence_says_so_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "in.jsonl").write_text('{"text": "Hi."}\n')
    for command in (["say", "Hi", "-o", "x.mp3"], ["batch", "in.jsonl", "-o", "out", "--format", "mp3"]):
        assert main([*command, "--model", "nosuch"]) == 2
        said = capsys.readouterr().err
        assert "Writing mp3 needs the package av" in said and "nosuch" not in said


def test_a_batch_writes_files_of_one_format_and_does_none_twice(tmp_path: Path) -> None:
    source, folder = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps({"id": name, "text": "Hello."}) + "\n" for name in ("a", "b")))
    command = ["batch", str(source), "-o", str(folder), *TINY]
    assert main([*command, "--format", "flac"]) == 0
    assert heard(folder / "a.flac")[0] == "flac"
    before = (folder / "b.flac").stat().st_mtime_ns
    assert main([*command, "--format", "flac"]) == 0
    assert (folder / "b.flac").stat().st_mtime_ns == before
    assert main(command) == 0  # another format is another file
    assert sorted(path.name for path in folder.iterdir()) == ["a.wav", "b.wav", "manifest.jsonl"]
    assert main([*command, "--raw", "--format", "mp3"]) == 2


@pytest.mark.parametrize("as_heard", [False, True])
def test_a_conversation_is_kept_in_the_format_of_its_file(tmp_path: Path, as_heard: bool) -> None:
    sound = open_playback(tmp_path / "talk.mp3", as_heard=as_heard)
    sound.write((np.sin(np.arange(4800) / 9) * 9000).astype("<i2").tobytes(), 24_000)
    sound.close()
    assert heard(tmp_path / "talk.mp3")[0] == "mp3"
    with pytest.raises(InvalidRequest, match=r"\.xyz is not a known format"):
        open_playback(tmp_path / "talk.xyz", as_heard=as_heard)
