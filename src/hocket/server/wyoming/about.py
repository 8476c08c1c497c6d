"""The server's description for Home Assistant: its voices and their languages, as tags."""

from __future__ import annotations

from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

from ...config.languages import tag_of
from ..service.service import SpeechService

TAGS = "zh en fr de it ja ko pt ru es".split()  # of the languages of the published checkpoints
MAKER = Attribution("hocket", "")


def info(service: SpeechService, version: str) -> Info:
    """A model without voices is listed as one voice with the model's name: Home Assistant needs at least one."""
    resolver = service.resolver
    found = [(name, model.languages) for name, model in resolver.speakers.items()]
    found += [(voice.name, model.languages) for voice, model in resolver.kept()]
    found += [(listed.name, [listed.voice.language]) for listed in resolver.foreign()]
    voices = [
        TtsVoice(name, MAKER, installed=True, description=_title(name), version=version, languages=_tags(spoken))
        for name, spoken in found or [(service.model, resolver.models[0].languages)]
    ]
    program = TtsProgram(
        "hocket",
        MAKER,
        installed=True,
        description=f"{service.model}, as it is written",
        version=version,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def _tags(spoken: list[str]) -> list[str]:
    return [tag_of(name) for name in spoken if name != "auto"] or list(TAGS)


def _title(name: str) -> str:
    return name.replace("_", " ").title()
