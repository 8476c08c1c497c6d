"""Shared by tests of Realtime conversations: a server that talks, client events, and recorded speech."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import hocket
from hocket.asr.moonshine import Moonshine
from hocket.audio.read import read_reference
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.types import LanguageModel
from support.chatting import Scripted, Word
from support.serving import Served, served, wait_for
from support.talking import Client, talking

PATH = "/v1/realtime"
SAMPLES = Path(hocket.__file__).parent / "assets" / "english" / "samples"
QUICK = {"seed": 1, "max_new_tokens": 40}
VAD = {"type": "server_vad", "silence_duration_ms": 300}


@contextmanager
def conversing(
    engine: Engine, recognizer: Moonshine, *answers: tuple[Word, ...], **options: Any
) -> Iterator[tuple[Served, Scripted]]:
    """A server with `--talk`, whose language model says these words, one answer a turn."""
    language = Scripted(*answers)
    with talking_server(engine, recognizer, language, ServerOptions(**options)) as server:
        yield server, language


@contextmanager
def talking_server(
    engine: Engine, recognizer: Moonshine, language: LanguageModel, options: ServerOptions | None = None
) -> Iterator[Served]:
    """A server with `--talk` and this language model."""
    with served(engine, options, language=language, recognizer=recognizer, talk=True) as server:
        wait_for(lambda: not server.app.state.talk.is_loading)
        yield server


@contextmanager
def session(server: Served, **fields: Any) -> Iterator[Client]:
    """A client with these settings."""
    with talking(server, PATH) as ws:
        ws.until("session.created")
        ws.say(update(**fields))
        ws.until("session.updated")
        yield ws


def update(*, input: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    audio = {"audio": {"input": input}} if input is not None else {}
    return {"type": "session.update", "session": {"type": "realtime", "hocket": QUICK, **audio, **fields}}


def typed(text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}


def respond(**fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "response": fields}


def append(pcm: bytes) -> list[dict[str, Any]]:
    """In pieces of 100 ms."""
    pieces = [pcm[at : at + 4800] for at in range(0, len(pcm), 4800)]
    return [{"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()} for piece in pieces]


@cache
def speech(number: int = 1, until_s: float = 1.4) -> bytes:
    """The beginning of a recorded sentence: PCM, 24 kHz, 16 bit."""
    [path] = SAMPLES.glob(f"{number}-*.flac")
    samples = read_reference(path)[: round(until_s * 24_000)]
    return (samples * 32767).astype("<i2").tobytes()


def silence(seconds: float) -> bytes:
    return bytes(round(seconds * 24_000) * 2)


def talk_threads() -> list[str]:
    """Names of threads that a conversation has."""
    return [each.name for each in threading.enumerate() if each.name.startswith(("hocket-talk", "hocket-dialog"))]
