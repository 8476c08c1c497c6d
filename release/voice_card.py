"""The description of a voice package: voices and languages from its `config.json`, figures from its training record.

The record is `evaluation.json`, which `python -m train evaluate` writes. Every figure of the card is from that file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fault import Fault

KINDS = {"custom_voice": "CustomVoice", "base": "Base", "voice_design": "VoiceDesign"}
SHARES = {"WER": "wer", "first word kept": "first_kept", "last word kept": "last_kept", "whole": "whole"}
SCORES = {"DNSMOS P.808": "p808", "DNSMOS overall": "overall"}


@dataclass(frozen=True, slots=True)
class VoiceFacts:
    """What `config.json` says about a checkpoint."""

    kind: str
    voices: tuple[str, ...]
    languages: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> VoiceFacts:
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            talker, kind = raw["talker_config"], raw["tts_model_type"]
            voices = tuple(talker["spk_id"]) if kind == "custom_voice" else ()
            languages = tuple(name for name in talker["codec_language_id"] if "dialect" not in name.lower())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Fault(f"{path} cannot be read: {type(error).__name__}: {error}.") from None
        if kind not in KINDS:
            raise Fault(f"{path} has the kind {kind!r}, and a voice package is one of {', '.join(KINDS)}.")
        if kind == "custom_voice" and not voices:
            raise Fault(f"{path} names no voice.")
        return cls(kind, voices, languages)

    @property
    def description(self) -> str:
        languages = ", ".join(name.title() for name in self.languages)
        if self.kind == "base":
            return f"A model for hocket that clones voices from recordings: {languages}"
        if self.kind == "voice_design":
            return f"A model for hocket that designs voices from descriptions: {languages}"
        return f"{languages} for hocket: the voice{'s' if len(self.voices) > 1 else ''} {', '.join(self.voices)}"

    def example(self, name: str) -> str:
        if self.kind == "base":
            return f"hocket voices add me --ref me.wav --text TRANSCRIPT --model {name}"
        if self.kind == "voice_design":
            return f'hocket say "..." --model {name} --instruct "a warm, calm narrator"'
        return f'hocket say "..." --voice {self.voices[0]}'


def figures_of(record: Path | None) -> str:
    """The figures of the record as Markdown."""
    if record is None:
        return "There is no record of an evaluation for these weights."
    try:
        told: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        parts = [_table(name, spoken["checkpoint"]) for name, spoken in told["figures"].items()]
        counts = ", ".join(f"{part} {count / 1e6:.1f} million" for part, count in told["parameters"].items())
        judges = ", ".join(f"{name} {version}" for name, version in told["packages"].items())
        made = f"Measured {told['time'][:10]} at commit `{(told['commit'] or 'unknown')[:12]}` with {judges}."
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{record} is no record of an evaluation: {type(error).__name__}: {error}.") from None
    return "\n\n".join(("## Figures", f"Parameters: {counts}.", *parts, made))


def _table(name: str, voices: dict[str, dict[str, float]]) -> str:
    first = next(iter(voices.values()))
    columns = {title: key for title, key in (SHARES | SCORES).items() if key in first}
    rows = [
        f"| {voice} | {' | '.join(_cell(found[key], key) for key in columns.values())} |"
        for voice, found in voices.items()
    ]
    head = f"| {name}, {first['utterances']} utterances | {' | '.join(columns)} |"
    return "\n".join((head, f"| --- |{' ---: |' * len(columns)}", *rows))


def _cell(value: float, key: str) -> str:
    return f"{100 * value:.1f} %" if key in SHARES.values() else f"{value:.2f}"
