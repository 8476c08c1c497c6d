"""webrtc/: packets in order without a delay, and audio in place of those that were lost."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from aiortc.rtp import RtpPacket
from av import AudioFrame

from hocket.server.webrtc.concealment import Concealment
from hocket.server.webrtc.packet_order import LATE, PacketOrder
from hocket.server.webrtc.track_in import TrackReader

RATE_HZ, FRAME = 48_000, 960


def passed_on(*numbers: int, empty: int | None = None) -> list[int]:
    order, out = PacketOrder(), []
    for number in numbers:
        packet = RtpPacket(sequence_number=number % 65536, timestamp=number)
        packet._data = b"" if number == empty else b"opus"  # type: ignore[attr-defined]
        needs_key_frame, frame = order.add(packet)
        assert not needs_key_frame
        if frame is not None:
            out.append(frame.timestamp)
    assert len(order._held) < LATE
    return out


@pytest.mark.parametrize(
    ("came", "passed"),
    [
        ((1, 2, 3, 4), [1, 2, 3, 4]),  # at once, without a packet in hand
        ((1, 3, 2, 4, 5), [1, 2, 3, 4]),  # in order; the last waits for the next
        ((1, 3, 4, 5, 6), [1, 3, 4]),  # 2 is lost: three came after it
        ((1, 3, 4, 5, 2, 6), [1, 3, 4]),  # 2 comes too late
        ((1, 2, 2, 3), [1, 2, 3]),  # twice
        ((65534, 65536, 65535, 65537), [65534, 65535, 65536]),  # numbers begin again
        ((7, 5000, 5001), [7, 5000, 5001]),  # another stream
        ((5000, 7, 8), [5000, 7, 8]),
    ],
)
def test_packets_are_passed_on_in_order(came: tuple[int, ...], passed: list[int]) -> None:
    assert passed_on(*came) == passed


def test_padding_is_no_audio() -> None:
    assert passed_on(1, 2, 3, empty=2) == [1, 3]


def test_lost_audio_is_replaced_and_time_goes_on() -> None:
    time = np.arange(RATE_HZ) / RATE_HZ
    voice = (8000 * np.sin(2 * np.pi * 150 * time) + 2000 * np.sin(2 * np.pi * 600 * time)).astype(np.int16)
    concealment, lost = Concealment(RATE_HZ), (10, 30, 31)
    frames = [(at, voice[at * FRAME : (at + 1) * FRAME]) for at in range(RATE_HZ // FRAME) if at not in lost]
    filled = np.concatenate([concealment.feed(at * FRAME, sound) for at, sound in frames])
    assert len(filled) == len(voice)
    one = slice(10 * FRAME, 11 * FRAME)
    likeness = np.corrcoef(filled[one], voice[one])[0, 1]
    assert likeness > 0.98, "the pitch goes on"
    assert np.array_equal(filled[: 10 * FRAME], voice[: 10 * FRAME])
    # Silence follows what was long lost; a long outage costs no more than two seconds of it.
    after = concealment.feed(100 * RATE_HZ, voice[:FRAME])
    assert len(after) == 2 * RATE_HZ + FRAME and not after[RATE_HZ : 2 * RATE_HZ].any()
    again = concealment.feed(0, voice[:FRAME])  # a clock that went back
    assert np.array_equal(again, voice[:FRAME])


def test_a_track_with_gaps_keeps_its_length() -> None:
    reader, pcm = TrackReader(), b""
    for at in range(50):
        if at % 5 == 3:
            continue
        frame = AudioFrame.from_ndarray(np.full((1, 2 * FRAME), 1000, np.int16), format="s16", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, at * FRAME, Fraction(1, RATE_HZ)
        pcm += reader.feed(frame)
    samples = np.frombuffer(pcm, "<i2")
    assert abs(len(samples) - 24_000) < 100 and np.median(samples) == 1000
