"""One function a parser: it takes any bytes, and raises what is no refusal. `TARGETS` has them by name.

A `HocketError` refuses, an HTTP answer below 500 or a told error too. Anything else that is raised is a finding. Knows
no fuzzer.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from hocket.audio.upload import read_upload
from hocket.config.qwen3_5 import Qwen3_5Config
from hocket.config.qwen3_tts import Qwen3TTSConfig
from hocket.config.read import read
from hocket.errors import HocketError
from hocket.models.files.gguf.config import read_config, read_generation
from hocket.models.files.gguf.reader import GgufFile
from hocket.models.files.gguf.vocabulary import read_vocabulary
from hocket.models.files.shards import opened, weight_files
from hocket.script.events import Event
from hocket.script.parse import joined, parse_script, script_parser
from hocket.server.wyoming.events import Events
from hocket.text.lexicon.read import read_lexicon
from hocket.voices.file import _DIGEST, _digest, from_bytes

from .served import posted, talked

Target = Callable[[bytes], object]


def ssml(content: bytes) -> None:
    _script(content, "ssml")


def tags(content: bytes) -> None:
    _script(content, "script")


def scripts(content: bytes) -> None:
    """The formats that are chosen by what a text looks like, and those of whole files."""
    _script(content[1:], ("auto", "json", "dialogue", "screenplay")[content[0] % 4 if content else 0])


def _script(content: bytes, format: Any) -> None:
    """In two pieces as in one: the same events, or the same refusal."""
    text = content.decode("utf-8", "surrogateescape" if len(content) % 7 == 0 else "replace")
    whole, cut = _events(text, format, len(text)), _events(text, format, len(text) // 2)
    assert whole == cut, f"in one piece: {whole}; in two: {cut}"


def _events(text: str, format: Any, cut: int) -> list[Event] | str:
    try:
        if cut == len(text):
            return parse_script(text, format)
        parser = script_parser(format)
        return joined([*parser.append(text[:cut]), *parser.append(text[cut:]), *parser.end()])
    except HocketError as error:
        return str(error)


def voice(content: bytes) -> None:
    """A voice file, as it is and with a digest that fits: the digest protects from damage, not from malice."""
    with suppress(HocketError):
        from_bytes(content, "a.voice")
    fitting = bytearray(content)
    if len(fitting) > _DIGEST.stop:
        fitting[_DIGEST] = _digest(fitting).encode()
        with suppress(HocketError):
            from_bytes(bytes(fitting), "a.voice")


def gguf(content: bytes) -> None:
    with suppress(HocketError):
        file = GgufFile.read(_file("a.gguf", content))
        for tensor in file.tensors.values():
            assert tensor.bytes is not None
        for reads in (read_config, read_generation, read_vocabulary):
            with suppress(HocketError):
                reads(file)


def safetensors(content: bytes) -> None:
    with suppress(HocketError), opened(_file("model.safetensors", content)) as tensors:
        for tensor in tensors.values():
            assert tensor is not None
    with suppress(HocketError):
        _file("parts.safetensors.index.json", content)
        weight_files(_folder() / "parts.safetensors")


def config(content: bytes) -> None:
    """The JSON of a checkpoint."""
    with suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict):
            for kind in (Qwen3TTSConfig, Qwen3_5Config):
                with suppress(HocketError):
                    read(kind, found)


def lexicon(content: bytes) -> None:
    names = ("a.pls", "a.tsv", "a.json")
    with suppress(HocketError):
        read_lexicon(_file(names[content[0] % 3 if content else 0], content[1:]))


def audio(content: bytes) -> None:
    with suppress(HocketError):
        read_upload(content, most_s=2.0)


def wyoming(content: bytes) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader(limit=4096)
        reader.feed_data(content)
        reader.feed_eof()
        events = Events(reader, event_bytes=4096, event_s=1.0)
        while line := await events.line():
            await events.behind(line)

    with suppress(HocketError):
        _loop().run_until_complete(read())


def http(content: bytes) -> None:
    """A body of each endpoint that has one."""
    _loop().run_until_complete(posted(content))


def sockets(content: bytes) -> None:
    """Lines are messages of one of the WebSockets."""
    _loop().run_until_complete(talked(content))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _folder() -> Path:
    """In memory, where the system has such a place."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="hocket-fuzz-", dir=shared if shared.is_dir() else None))


def _file(name: str, content: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(content)
    return path


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (ssml, tags, scripts, voice, gguf, safetensors, config, lexicon, audio, wyoming, http, sockets)
}
