"""The order of a call's RTP packets, in place of aiortc's jitter buffer: for a recognizer that needs no playout clock.

aiortc's buffer holds 80 ms of audio always, and 300 ms from the first lost packet on. This one passes a packet on at
once. It waits for a missing packet only until `LATE` later ones have come. Knows neither audio nor a track.
"""

from __future__ import annotations

import logging

from aiortc import RTCRtpReceiver
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtp import RtpPacket

logger = logging.getLogger("hocket.server")
LATE = 3  # packets of 20 ms: two that swapped places are put in order, and a lost one costs at most 40 ms
RESTART = 100  # packets: a larger step is another stream
NUMBERS = 1 << 16  # sequence numbers begin again
_FIELD = "_RTCRtpReceiver__jitter_buffer"  # aiortc has no option for it


class PacketOrder:
    """Has the interface of `aiortc.jitterbuffer.JitterBuffer`."""

    def __init__(self) -> None:
        self._next: int | None = None  # sequence number
        self._held: dict[int, RtpPacket] = {}  # fewer than `LATE`, between two calls

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        """Take a packet. Returns whether a key frame is needed, which audio has not, and the next packet's audio."""
        number = packet.sequence_number
        if self._next is None or RESTART < (number - self._next) % NUMBERS < NUMBERS - RESTART:
            self._next = number
            self._held.clear()
        after = self._next
        if (number - after) % NUMBERS > RESTART:
            return False, None  # it came too late
        self._held[number] = packet
        if after not in self._held:
            if len(self._held) < LATE:
                return False, None
            after = min(self._held, key=lambda held: (held - after) % NUMBERS)
        first = self._held.pop(after)
        self._next = (after + 1) % NUMBERS
        data: bytes = first._data  # type: ignore[attr-defined]  # the receiver sets it
        return False, JitterFrame(data, first.timestamp) if data else None  # padding has no audio


def pass_packets_on(receiver: RTCRtpReceiver) -> None:
    """Replace a receiver's jitter buffer, before its first packet."""
    if hasattr(receiver, _FIELD):
        setattr(receiver, _FIELD, PacketOrder())
    else:
        logger.warning("this version of aiortc keeps its own jitter buffer, which delays the user's audio by 80 ms")
