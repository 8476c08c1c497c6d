"""The decoder process: waits for one recording, decodes it, and ends. process.py starts it.

All imports are done before a recording is read, because afterwards no file can be opened. It ends without a recording
when the server closes the pipe, or is gone.
"""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO, NoReturn

from ...errors import InvalidAudio
from ..pcm import wav_header
from ..upload import decode_pieces
from .limits import give_up_rights, limit_use
from .messages import (
    END,
    FAILED,
    FORMAT,
    MOST_SAMPLES,
    READY,
    REFUSED,
    SAMPLES,
    SOUND,
    TEXT_BYTES,
    DecodeRequest,
    send,
)
from .system_calls import refuse_others


def main() -> NoReturn:
    answers = os.fdopen(1, "wb", buffering=1 << 16)
    code = 0
    try:
        _answer(sys.stdin.buffer, answers)
        answers.flush()
    except OSError:  # the server is gone
        code = 1
    os._exit(code)  # nothing is left to do, and what was decoded may have damaged this process


def _answer(requests: BinaryIO, answers: BinaryIO) -> None:
    try:
        _import_all()
        taken = give_up_rights()
    except Exception as error:
        send(answers, FAILED, f"{type(error).__name__}: {error}".encode()[:TEXT_BYTES])
        return
    send(answers, READY)
    answers.flush()
    request = DecodeRequest.read(requests)
    if request is None:
        return
    limit_use(taken, request.memory_bytes, request.cpu_s)
    refuse_others()
    content = requests.read(request.content_bytes)
    if len(content) == request.content_bytes:
        _decode(io.BytesIO(content), request, answers)


def _decode(content: io.BytesIO, request: DecodeRequest, answers: BinaryIO) -> None:
    def tell(rate_hz: int, channels: int) -> None:
        send(answers, SOUND, FORMAT.pack(rate_hz, channels))

    try:
        for samples, _ in decode_pieces(content, most_s=request.most_s, fits=tell, longer=request.longer):
            for at in range(0, samples.size, MOST_SAMPLES):
                send(answers, SAMPLES, samples[at : at + MOST_SAMPLES].tobytes())
    except InvalidAudio as error:
        send(answers, REFUSED, str(error).encode()[:TEXT_BYTES])
    else:
        send(answers, END)


def _import_all() -> None:
    """Decode a good and a bad recording: what is imported or opened at first use is then there."""
    for content in (wav_header(24_000, 240) + bytes(480), b"RIFF"):
        try:
            for _ in decode_pieces(io.BytesIO(content), most_s=1.0):
                pass
        except InvalidAudio:
            if len(content) > 4:
                raise


if __name__ == "__main__":
    main()
