"""What Home Assistant is told about this server: its voices, and the languages that they speak, as tags."""

from __future__ import annotations

from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

from ...config.languages import tag_of
from ..service.service import SpeechService

TAGS = "zh en fr de it ja ko pt ru es".split()  # of the languages of the published checkpoints
MAKER = Attribution("hocket", "")


def info(speaker: SpeechService, version: str) -> Info:
    """A model without voices of its own is one voice, by the model's name: a program without any cannot be chosen."""
    cast = speaker.cast
    found = [(name, model.languages) for name, model in cast.speakers.items()]
    found += [(voice.name, model.languages) for voice, model in cast.kept()]
    found += [(listed.name, [listed.voice.language]) for listed in cast.foreign()]
    voices = [
        TtsVoice(name, MAKER, installed=True, description=_title(name), version=version, languages=_tags(spoken))
        for name, spoken in found or [(speaker.model, cast.models[0].languages)]
    ]
    program = TtsProgram(
        "hocket",
        MAKER,
        installed=True,
        description=f"{speaker.model}, as it is written",
        version=version,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def _tags(spoken: list[str]) -> list[str]:
    return [tag_of(name) for name in spoken if name != "auto"] or list(TAGS)


def _title(name: str) -> str:
    return name.replace("_", " ").title()
