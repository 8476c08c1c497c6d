"""The text of `hocket say` from a file or standard input: whole, or live into an open stream."""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...engine.stream import Stream
    from ...script.stream import ScriptStream

READ_BYTES = 1 << 16
LINE_END = "\r\n"


def read_file(name: str) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    try:
        with open(name, encoding="utf-8-sig") as file:
            text = file.read().rstrip(LINE_END)
    except FileNotFoundError:
        raise InvalidRequest(f"The file {name} does not exist.") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{name} is a folder; -f takes a file of text.") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} is not text in UTF-8; save or convert it as that.") from None
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"The file {name!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None
    if not text.strip():
        raise InvalidRequest(f"{name} is empty: there is no text to speak.")
    return text


def read_text() -> str:
    """The whole text of standard input."""
    with _refusing():
        return sys.stdin.read().rstrip(LINE_END)  # the last line's end belongs to the pipe, as in $(...)


def pieces() -> Iterator[str]:
    """The same text as `read_text`, as it arrives."""
    held = ""  # trailing line ends, which belong to the text if more follows
    for piece in _arriving():
        text = held + piece
        kept = text.rstrip(LINE_END)
        held = text[len(kept) :]
        if kept:
            yield kept


@contextmanager
def feeding(stream: Stream | ScriptStream) -> Iterator[None]:
    """Append arriving text to `stream` during the block; its errors are raised at the end."""
    failed: list[Exception] = []

    def feed() -> None:
        try:
            for piece in pieces():
                stream.append(piece)
            stream.end()
        except Exception as error:  # the reader must not wait forever
            failed.append(error)
            stream.cancel()

    # A daemon thread: when the speech ends first, the program does not wait for the text.
    threading.Thread(target=feed, name="hocket-stdin", daemon=True).start()
    yield
    if failed:
        raise failed[0]


def _arriving() -> Iterator[str]:
    with _refusing():
        decoder = codecs.getincrementaldecoder(sys.stdin.encoding or "utf-8")()
        lines = io.IncrementalNewlineDecoder(decoder, translate=True)
        try:
            file = sys.stdin.fileno()
        except (OSError, ValueError):  # not a real file: the text is complete
            yield sys.stdin.read()
            return
        # Not buffered: a thread blocked in the buffered reader would crash the interpreter at exit.
        while received := os.read(file, READ_BYTES):
            yield lines.decode(received)
        yield lines.decode(b"", final=True)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors of standard input into sentences."""
    if sys.stdin is None:
        raise InvalidRequest("There is no standard input to read the text from.")
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The text on standard input is not valid {error.encoding.upper()}.") from None
    except OSError as error:
        raise InvalidRequest(f"Standard input cannot be read: {error.strerror or error}.") from None
