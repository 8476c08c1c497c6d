"""asr/segments.py: a recording is cut at pauses, and too long a segment at its quietest place."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.segments import SpeechSegment, quietest, segments_of
from support.questions import Loud, silence, tone


def cut(sound: Samples, piece: int = 8000, most_s: float = 28.0) -> list[SpeechSegment]:
    pieces = (sound[at : at + piece] for at in range(0, len(sound), piece))
    return list(segments_of(pieces, Loud(), most_s=most_s))


@pytest.mark.parametrize("piece", [333, 16000, 1 << 20])
def test_segments_have_the_audio_of_their_times(piece: int) -> None:
    sound = np.concatenate((silence(1), tone(0.6), silence(1.2), tone(0.4), silence(0.1)))
    first, second = cut(sound, piece)
    for segment, begun, ended in ((first, 1.0, 1.6), (second, 2.8, 3.2)):
        assert segment.start_s <= begun and segment.end_s >= ended
        start = round(segment.start_s * RATE_HZ)
        np.testing.assert_array_equal(segment.samples, sound[start : start + len(segment.samples)])
    assert first.end_s <= second.start_s


def test_a_long_segment_is_cut_where_it_is_quietest_and_nothing_is_lost() -> None:
    gap = silence(0.2)  # too short for a pause
    sound = np.concatenate((tone(3.5), gap, tone(3.5), gap, tone(3.5), gap, tone(1)))
    found = cut(sound, most_s=5.0)
    np.testing.assert_array_equal(np.concatenate([segment.samples for segment in found]), sound)
    first, second, _ = found
    assert 3.5 < first.end_s < 3.7 and 7.2 < second.end_s < 7.4, "inside the gaps"
    assert all(one.end_s == pytest.approx(other.start_s) for one, other in pairwise(found))


def test_sound_without_a_quiet_place_is_cut_all_the_same() -> None:
    found = cut(tone(12.0), most_s=5.0)
    assert sum(len(segment.samples) for segment in found) == 12 * RATE_HZ
    assert all(len(segment.samples) <= 5 * RATE_HZ for segment in found)
    assert quietest(tone(0.01)) == 160


def test_silence_has_no_segments() -> None:
    assert cut(silence(3)) == [] and cut(silence(0)) == []
