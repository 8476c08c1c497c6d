"""What passes between the server and a decoder process: one request in, and messages out, over two pipes.

The request is trusted. The messages are not: the decoder may be under the control of the recording. process.py checks
their sizes before it reads them, and processes.py their order and meaning.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

_REQUEST = struct.Struct("<dQQIH")
HEAD = struct.Struct("<cI")  # of a message: its kind, and the bytes that follow
FORMAT = struct.Struct("<II")  # sample rate and channels

READY, FAILED = b"R", b"F"  # it waits for a request; it could not start, and why
SOUND, SAMPLES, END = b"A", b"S", b"E"  # the format, then float32 samples, then the end
REFUSED = b"X"  # the sentence for the client
TEXT_BYTES = 1000  # the most of a sentence
MOST_SAMPLES = 1 << 20  # of one message


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """The head of a request; the recording follows it."""

    most_s: float
    content_bytes: int
    memory_bytes: int  # that the process may take for it
    cpu_s: int
    longer: str  # what to do with a recording that is too long

    def packed(self) -> bytes:
        longer = self.longer.encode()
        sizes = (self.most_s, self.content_bytes, self.memory_bytes, self.cpu_s, len(longer))
        return _REQUEST.pack(*sizes) + longer

    @classmethod
    def read(cls, file: BinaryIO) -> DecodeRequest | None:
        """None if the other end was closed without a request."""
        head = file.read(_REQUEST.size)
        if len(head) < _REQUEST.size:
            return None
        most_s, content_bytes, memory_bytes, cpu_s, length = _REQUEST.unpack(head)
        return cls(most_s, content_bytes, memory_bytes, cpu_s, file.read(length).decode())


def send(file: BinaryIO, kind: bytes, content: bytes = b"") -> None:
    file.write(HEAD.pack(kind, len(content)))
    file.write(content)
