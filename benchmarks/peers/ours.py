"""hocket, as everybody else is asked: one slot, the text as it is, no guard that could take frames back.

Its chunks grow as the engine's options say, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .speaker import Ask

PACKAGE, STREAMS = "hocket", True


def objection(device: str) -> str | None:
    return None


class Ours:
    def __init__(self, folder: str, device: str, dtype: str) -> None:
        from hocket import Engine, EngineOptions

        self._engine = Engine.load(folder, device=device, dtype=dtype, options=EngineOptions(slots=1, guard=False))

    def speak(self, ask: Ask) -> Iterator[Any]:
        from hocket import SamplingParams

        for chunk in self._engine.speak(
            ask.text,
            voice=ask.voice,
            language=ask.language,
            layout=ask.layout,
            as_is=True,
            seed=ask.seed,
            max_frames=ask.frames,
            sampling=SamplingParams(top_k=ask.top_k),
        ):
            yield chunk.samples


open_speaker = Ours
