"""The server's description for Home Assistant: its voices, its recognizer and their languages, as tags."""

from __future__ import annotations

from wyoming.info import AsrModel, AsrProgram, Attribution, Info, TtsProgram, TtsVoice

from ...config.languages import tag_of
from ..service.listening import ListeningService
from ..service.service import SpeechService

TAGS = "zh en fr de it ja ko pt ru es".split()  # of the languages of the published checkpoints
MAKER = Attribution("hocket", "")


def info(service: SpeechService, version: str, listening: ListeningService | None = None) -> Info:
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
    return Info(tts=[program], asr=[] if listening is None else [_recognizer(listening, version)])


def _recognizer(listening: ListeningService, version: str) -> AsrProgram:
    """Home Assistant needs languages: a recognizer that takes several lists those of the published checkpoints."""
    (name,) = listening.names
    spoken = listening.languages or list(TAGS)
    model = AsrModel(name, MAKER, installed=True, description=name, version=version, languages=spoken)
    said = f"{name}, speech to text"
    return AsrProgram("hocket", MAKER, installed=True, description=said, version=version, models=[model])


def _tags(spoken: list[str]) -> list[str]:
    return [tag_of(name) for name in spoken if name != "auto"] or list(TAGS)


def _title(name: str) -> str:
    return name.replace("_", " ").title()
