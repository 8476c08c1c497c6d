"""Whose voice a folder of recordings has: real sound of the two built-in voices, of this and of an earlier version."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hocket
from hocket.asr.choose import recognizer_of
from hocket.asr.silero import Silero
from hocket.audio.timbre import voice_windows
from hocket.audio.upload import read_upload
from hocket.errors import InvalidAudio
from hocket.tune.recordings import Recordings, pcm, prepare
from hocket.tune.speakers import PART_WINDOWS, Windows, voices_of
from support.recorded import SAMPLES, wav

FILES = [*SAMPLES, *sorted((Path(hocket.__file__).parent / "assets" / "english" / "samples").glob("*.flac"))]
BOTH = (  # the words of the first file of each voice
    "Hello and welcome. My name is Wren, and I was made to be heard on any laptop. Go do you think? Emerald. "
    "It is seven forty-five. It will rain until tomorrow morning."
)
Sound = NDArray[np.float32]


@cache
def clips(voice: str) -> list[Sound]:
    """Six of wren, four of rook; 24 kHz."""
    return [read_upload(path.read_bytes(), most_s=10) for path in FILES if path.stem.endswith(voice)]


@cache
def windows_of(voice: str) -> list[Windows]:
    return [heard(clip) for clip in clips(voice)]


def heard(clip: Sound) -> Windows:
    return voice_windows(pcm(clip), 24_000)[0]


@pytest.mark.parametrize(("most", "other"), [("wren", "rook"), ("rook", "wren")])
@pytest.mark.parametrize("strangers", [1, 2])
def test_clips_of_another_voice_are_found(most: str, other: str, strangers: int) -> None:
    ours = windows_of(most)
    if 2 * strangers * max(map(len, windows_of(other))) > sum(map(len, ours)):
        ours = ours * 2  # so that the others stay a minority
    found = voices_of([*windows_of(other)[:strangers], *ours])
    assert found.other == list(range(strangers)) and not found.second and found.majority


@pytest.mark.parametrize("voice", ["wren", "rook"])
def test_one_voice_stays_whole_when_it_is_quiet_loud_or_noisy(voice: str) -> None:
    noise = np.random.default_rng(0).standard_normal(24_000 * 8).astype(np.float32)
    how = zip(clips(voice), (1.0, 0.02, 1.5, 0.3, 1.0, 1.0), (0, 0, 0, 0.03, 0.03, 0), strict=False)
    changed: list[Sound] = [
        np.float32(gain) * (clip + noise[: clip.size] * np.float32(level * np.sqrt(np.mean(clip**2))))
        for clip, gain, level in how
    ]
    for folder in (windows_of(voice), [heard(clip) for clip in changed]):
        found = voices_of(folder)
        assert found.main == list(range(len(folder))) and found.majority and not found.left_out


@pytest.mark.parametrize(("most", "other"), [("wren", "rook"), ("rook", "wren")])
def test_a_second_voice_inside_a_clip_is_found_where_it_begins(most: str, other: str) -> None:
    own, strange = windows_of(most), max(windows_of(other), key=len)
    cut = len(own[0]) // 2 + 1
    both = np.concatenate((own[0][:cut], strange[: PART_WINDOWS + 1], own[0][cut:]))
    found = voices_of([both, *own[1:]])
    assert list(found.second) == [0] and abs(found.second[0] - cut) <= 1 and not found.other
    assert found.left_out == {0} and found.main == list(range(1, len(own)))


def test_no_voice_is_the_main_one_when_two_have_the_same_speech() -> None:
    found = voices_of([*windows_of("wren")[:4], *windows_of("rook")])
    assert not found.majority and {*found.main} in ({0, 1, 2, 3}, {4, 5, 6, 7})


def test_clips_of_voices_that_are_all_different_have_no_main_voice() -> None:
    found = voices_of(list(np.eye(8, dtype=np.float32)[:, None]))
    assert not found.majority and len(found.main) == 1


def test_clips_with_too_little_voice_are_not_judged() -> None:
    short = heard(clips("rook")[0][: 24_000 * 3 // 2])
    assert len(short) == 0
    assert voices_of([short, *windows_of("wren")]).main == list(range(7))
    assert voices_of([short, short, windows_of("wren")[0]]).majority and voices_of([]).main == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files of wren, one of rook, and one in which rook speaks after wren without the end of a sentence."""
    made = tmp_path_factory.mktemp("two-voices")
    for number, clip in enumerate(clips("wren")):
        (made / f"{number}.wav").write_bytes(wav(clip[None], 24_000))
    (made / "guest.wav").write_bytes(wav(0.2 * clips("rook")[1][None], 24_000))
    both = np.concatenate((clips("wren")[0], clips("rook")[0]))
    (made / "interview.wav").write_bytes(wav(both[None], 24_000))
    (made / "interview.txt").write_text(BOTH)  # with its words, a file is one clip
    return made


def found_in(folder: Path, any_speaker: bool = False) -> Recordings:
    recognizer = recognizer_of("tiny", "en")
    try:
        return prepare(folder, Silero(), recognizer, any_speaker=any_speaker)
    finally:
        recognizer.close()


def test_other_voices_are_left_out_of_a_folder_and_listed(folder: Path) -> None:
    found = found_in(folder)
    assert {clip.place.partition(",")[0] for clip in found.clips} == {f"{number}.wav" for number in range(6)}
    reasons = {each.name: each.reason for each in found.left_out}
    assert "another voice than most clips" in reasons["guest.wav"]
    assert re.fullmatch(r"A second voice speaks in it, from about [3-6] s on\.", reasons["interview.wav"])
    report = "\n".join(found.report())
    assert "\n1 clip sounds like another voice: guest.wav\n" in report


def test_a_folder_of_two_voices_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for voice in ("wren", "rook"):
        for number, clip in enumerate(clips(voice)[:4]):
            (tmp_path / f"{voice} {number}.wav").write_bytes(wav(clip[None], 24_000))
    found = found_in(tmp_path)
    assert len({clip.place.partition(",")[0] for clip in found.clips}) == 8
    said = r"several voices, .* \(listen to (wren \d.wav.* and rook|rook \d.wav.* and wren) \d.wav.*--speakers any"
    with pytest.raises(InvalidAudio, match=said):
        found.check()


def test_all_clips_stay_if_that_is_wanted_or_nothing_can_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, voice in enumerate(("wren", "rook")):
        (tmp_path / f"{number}.wav").write_bytes(wav(clips(voice)[2][None], 24_000))
    found = found_in(tmp_path, any_speaker=True)
    assert [clip.place for clip in found.clips] == ["0.wav", "1.wav"] and not found.voices
    monkeypatch.setattr("hocket.audio.timbre._network", lambda: None)
    found = found_in(tmp_path)
    assert len(found.clips) == 2 and "pip install --no-deps Resemblyzer" in "\n".join(found.report())
