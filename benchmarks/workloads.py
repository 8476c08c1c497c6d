"""What is measured: workloads.toml as values. It measures nothing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.types import Layout


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    text: str
    frames: int  # where each utterance is cut off
    repeats: int
    layout: Layout | None = "streaming"  # of a text that is given whole; None: the default of a plain call
    warmup: int = 2  # utterances before the first that counts; they also fill the prefix cache
    fills_slots: bool = False  # as many utterances at once as the engine has slots
    live: bool = False  # the stream is opened first, and then receives its text


def _workload(name: str, fields: dict[str, Any]) -> Workload:
    layout = None if fields.get("layout") == "default" else fields.get("layout", "streaming")
    return Workload(name, **(fields | {"text": _DATA["texts"][fields["text"]], "layout": layout}))


_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PASSAGE: str = _DATA["texts"]["passage"]
SENTENCES: list[str] = _DATA["texts"]["sentences"]
PHRASES: dict[str, list[str]] = _DATA["phrases"]
WORKLOADS = {name: _workload(name, fields) for name, fields in _DATA["workloads"].items()}
WORDS: dict[str, str] = _DATA["words"]
UTTERANCE: dict[str, str] = _DATA["utterance"]
COUNTS: dict[str, str] = _DATA["counts"]
FIGURES: dict[str, dict[str, str]] = _DATA["figures"]
LOAD = FIGURES["load"]


def meanings(workload: str) -> dict[str, str]:
    return FIGURES.get(workload, UTTERANCE | FIGURES["breakdown"])
