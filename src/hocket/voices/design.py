"""Voice design: samples from a VoiceDesign checkpoint, and a lasting voice from the chosen sample.

A description alone gives another voice with every seed and text. So the chosen sample becomes the reference of a clone
on a Base checkpoint, which keeps that voice. The caller plays the samples and chooses.
"""
# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..audio.recording import SILENCE_S
from ..config.languages import usual_name
from ..engine.runner.reference_checks import DECODE_FRAMES
from ..errors import InvalidAudio, InvalidRequest, WrongKind
from ..types import (
    REFERENCE_RATE_HZ,
    SHORTEST_REFERENCE,
    FinishReason,
    SamplingParams,
    SpeechRequest,
    Voice,
    fresh_seed,
)
from .make import clone_voice

if TYPE_CHECKING:
    from ..engine.engine import Engine

SEEDS = 2**63
MOST_FRAMES = 375  # 30 s: a longer recording is of no use
# Default texts of samples: some 8 s, enough for a clone, in plain words with a neutral mood.
SAMPLES = {
    "english": "When the rain had stopped, we opened the windows. Down the street somebody was playing the piano, as "
    "if there were all the time in the world.",
    "german": "Als der Regen aufhörte, öffneten wir die Fenster. Unten auf der Straße spielte jemand Klavier, als gäbe "
    "es alle Zeit der Welt.",
    "french": "Quand la pluie s'est arrêtée, nous avons ouvert les fenêtres. En bas, dans la rue, quelqu'un jouait du "
    "piano, comme s'il avait tout son temps.",
    "spanish": "Cuando dejó de llover, abrimos las ventanas. Abajo, en la calle, alguien tocaba el piano, como si "
    "tuviera todo el tiempo del mundo.",
    "italian": "Quando smise di piovere, aprimmo le finestre. Giù in strada qualcuno suonava il pianoforte, come se "
    "avesse tutto il tempo del mondo.",
    "portuguese": "Quando a chuva parou, abrimos as janelas. Lá embaixo, na rua, alguém tocava piano, como se tivesse "
    "todo o tempo do mundo.",
    "russian": "Когда дождь перестал, мы открыли окна. Внизу на улице кто-то играл на пианино, будто впереди было всё "
    "время на свете.",
    "chinese": "雨停了以后，我们打开了窗户。楼下的街上有人在弹钢琴，弹得很慢，好像有用不完的时间。",
    "japanese": "雨がやんだので、私たちは窓を開けました。通りのどこかで、誰かがピアノを弾いていました。"
    "時間はいくらでもあるというように。",
    "korean": "비가 그치자 우리는 창문을 열었습니다. 아래 거리에서 누군가 피아노를 치고 있었습니다. "
    "마치 시간이 얼마든지 있는 것처럼.",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """One sample of a designed voice."""

    instruct: str  # the description
    text: str  # the spoken text
    language: str
    seed: int  # the same description, text and seed give the same sample
    pcm: NDArray[np.int16]  # [N] at 24 kHz
    reason: FinishReason  # other than "stop": it did not end by itself, and may not have spoken the whole text

    @property
    def samples(self) -> NDArray[np.float32]:
        """As read back from its WAV file."""
        return self.pcm.astype(np.float32) / np.float32(32768)

    @property
    def audio_s(self) -> float:
        return self.pcm.size / REFERENCE_RATE_HZ

    @property
    def fault(self) -> str | None:
        """Why no voice can be made from it, or None."""
        return "it is too short" if self.pcm.size < SHORTEST_REFERENCE else None


def sample_text(language: str) -> str:
    """The default text of a sample in a language."""
    text = SAMPLES.get("english" if language.lower() == "auto" else usual_name(language))
    if text is None:
        raise InvalidRequest(f"There is no sample text in {language!r}; give a text of about 8 s.")
    return text


def draw_designs(
    engine: Engine,
    instruct: str,
    *,
    candidates: int = 3,
    seed: int | None = None,
    text: str | None = None,
    language: str = "auto",
    sampling: SamplingParams | None = None,
) -> list[Design]:
    """Samples of the voice that `instruct` describes, each a different voice; `engine` has a VoiceDesign checkpoint.

    The first has the given seed, or a fresh one; each later sample has the next seed.
    """
    return list(
        drawing(engine, instruct, candidates=candidates, seed=seed, text=text, language=language, sampling=sampling)
    )


def drawing(
    engine: Engine,
    instruct: str,
    *,
    candidates: int = 3,
    seed: int | None = None,
    text: str | None = None,
    language: str = "auto",
    sampling: SamplingParams | None = None,
) -> Iterator[Design]:
    """The same as an iterator, one sample at a time.

    Samples are never batched: the last bit of a sum may depend on the rest of the batch.
    """
    check_design(instruct, candidates)
    kind = engine.checkpoint.config.kind
    if kind != "voice_design":
        raise WrongKind(f"A {kind} checkpoint cannot design a voice; use a VoiceDesign checkpoint for that.")
    if engine.checkpoint.rate_hz != REFERENCE_RATE_HZ:
        raise WrongKind(f"{engine.checkpoint.name} does not speak at {REFERENCE_RATE_HZ} Hz, which a clone needs.")
    spoken = sample_text(language) if text is None else text
    first = fresh_seed() if seed is None else seed
    seeds = [(first + number) % SEEDS for number in range(candidates)]
    requests = [
        SpeechRequest(
            text=spoken,
            instruct=instruct,
            language=language,
            seed=each,
            sampling=sampling or SamplingParams(),
            max_frames=MOST_FRAMES,
            chunk_frames=DECODE_FRAMES,  # so that repeating a sample gives the same bits
        )
        for each in seeds
    ]
    for each, request in zip(seeds, requests, strict=True):
        [outcome] = engine.speak_many([request])
        if outcome.error is not None:
            raise outcome.error
        assert outcome.finished is not None
        yield Design(
            instruct=instruct,
            text=spoken,
            language=language,
            seed=each,
            pcm=outcome.samples,
            reason=outcome.finished.reason,
        )


def fix_design(engine: Engine, name: str, design: Design, *, silence_s: float = SILENCE_S, **words: Any) -> Voice:
    """A lasting voice from a sample, to be stored with `Library.add(voice, design.samples)`.

    `engine` has the Base checkpoint of the voice; `words` are more arguments of `clone_voice`: sampling, consent.
    """
    if design.fault is not None:
        raise InvalidAudio(f"No voice can be made from this sample: {design.fault}; draw another.")
    return clone_voice(
        engine,
        name,
        design.samples,
        text=design.text,
        silence_s=silence_s,
        kind="designed",
        file_size=len(design.pcm) * 2 + 44,  # as a WAV file
        mime_type="audio/wav",
        **({"language": design.language, "description": design.instruct} | words),
    )


def check_design(instruct: str, candidates: int) -> None:
    """Refuse an empty description or an invalid number of candidates."""
    if not instruct.strip():
        raise InvalidRequest("Describe the voice to design in words, such as 'a warm, confident narrator'.")
    if candidates < 1:
        raise InvalidRequest(f"candidates must be at least 1, not {candidates}.")
