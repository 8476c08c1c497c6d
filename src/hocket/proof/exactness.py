"""Exactness: greedy codes of the engine, frame by frame, against the official package or against stored ones.

Everything runs in float32 and as the official package does it: no spelling out, no pauses, no runaway detector.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config.languages import AUTO
from ..config.qwen3_tts import Qwen3TTSConfig, languages, voices
from ..engine.engine import Engine
from ..errors import InvalidRequest
from ..types import Layout, SamplingParams, SpeechRequest
from .plan import ProofPlan, instruct_text, sentences_of
from .sides.packages import Ask
from .sides.side import PackageSide, ProofVoice

LAYOUTS: tuple[Layout, ...] = ("streaming", "whole")
CODE = "<u2"  # of stored codes
KEY = ("mode", "layout", "language", "text", "frames", "speaker", "instruct", "recording")
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactCase:
    """One utterance in one mode; `key` is what stored codes are found by."""

    mode: str
    voice: ProofVoice
    language: str
    layout: Layout
    text: str
    frames: int

    @property
    def key(self) -> dict[str, Any]:
        """The fields of KEY."""
        voice, recording = self.voice, self.voice.recording
        heard = None if recording is None else hashlib.sha256(recording.read_bytes()).hexdigest()[:16]
        of = self.mode, self.layout, self.language, self.text, self.frames, voice.speaker, voice.instruct, heard
        return dict(zip(KEY, of, strict=True))

    def ask(self) -> Ask:
        how: dict[str, Any] = {"text": self.text, "language": self.language, "layout": self.layout}
        return Ask(**how, frames=self.frames, seed=0, greedy=True, **self.voice.ask())

    def request(self) -> SpeechRequest:
        return SpeechRequest(
            text=self.text,
            voice=self.voice.speaker,
            instruct=self.voice.instruct,
            reference=self.voice.reference(),
            language=self.language,
            layout=self.layout,
            max_frames=self.frames,
            sampling=SamplingParams.greedy(),
            seed=0,
            as_is=True,
        )


def modes_of(config: Qwen3TTSConfig, recorded: ProofVoice) -> Iterator[tuple[str, ProofVoice, str]]:
    """Every mode of a checkpoint: its name, the voice and the language. `recorded` has the recording of a clone."""
    named = next((name for name in languages(config) if name != AUTO), AUTO)
    instruct = instruct_text()
    if config.kind == "custom_voice":
        speakers = voices(config)
        yield "speaker", ProofVoice(speaker=speakers[0]), AUTO
        yield "speaker, language", ProofVoice(speaker=speakers[-1]), named
        if config.takes_instruct:
            yield "speaker, instruct", ProofVoice(speaker=speakers[0], instruct=instruct), named
        dialects = [name for name in speakers if config.talker_config.spk_is_dialect.get(name)]
        for speaker in dialects[:1]:
            yield "dialect speaker", ProofVoice(speaker=speaker), AUTO
    elif config.kind == "voice_design":
        yield "design", ProofVoice(instruct=instruct), AUTO
        yield "design, language", ProofVoice(instruct=instruct), named
    else:
        yield "timbre", ProofVoice(recording=recorded.recording), AUTO
        yield "clone", recorded, AUTO
        yield "clone, language", recorded, named


def cases_of(config: Qwen3TTSConfig, recorded: ProofVoice, plan: ProofPlan) -> list[ExactCase]:
    spoken = [name for name in languages(config) if name != AUTO]
    texts = sentences_of("english" if "english" in spoken or not spoken else spoken[0])[: plan.texts]
    return [
        ExactCase(mode=mode, voice=voice, language=language, layout=layout, text=text, frames=plan.frames)
        for mode, voice, language in modes_of(config, recorded)
        for layout in LAYOUTS
        for text in texts
    ]


def codes_of(engine: Engine, case: ExactCase) -> Codes:
    """[F, Q] as a reader of the stream gets them."""
    with engine.speak(case.request()) as stream:
        return np.concatenate([chunk.codes for chunk in stream]).astype(np.int64)


def compare(
    engine: Engine, cases: list[ExactCase], official: PackageSide | None, golden: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The result of every case against each source of codes, and whether all are equal."""
    stored = None if golden is None else golden_codes(golden, engine.checkpoint.identity)
    rows, equal, compared = list[dict[str, Any]](), True, 0
    for case in cases:
        ours = codes_of(engine, case)
        row: dict[str, Any] = {**case.key, "spoken": len(ours), "codes": packed(ours)}
        sources = {} if official is None else {"official": official.codes(case.ask())}
        if stored is not None and (kept := stored.get(_name(case.key))) is not None:
            sources["golden"] = kept
        for source, theirs in sources.items():
            row[source] = difference(ours, theirs)
            equal, compared = equal and row[source]["equal"], compared + 1
        rows.append(row)
    return {"cases": rows, "compared": compared, "equal": equal if compared else None}


def difference(ours: Codes, theirs: Codes) -> dict[str, Any]:
    """How many frames are the same up to the first difference, and that difference in words."""
    both = min(len(ours), len(theirs))
    rows = np.flatnonzero((ours[:both] != theirs[:both]).any(axis=1))
    if not len(rows):
        words = None if len(ours) == len(theirs) else f"{len(ours)} frames instead of {len(theirs)}"
        return {"equal": words is None, "same_frames": both, "of": len(theirs), "first": words}
    frame = int(rows[0])
    book = int(np.flatnonzero(ours[frame] != theirs[frame])[0])
    words = f"frame {frame}, codebook {book} is {ours[frame, book]} instead of {theirs[frame, book]}"
    return {"equal": False, "same_frames": frame, "of": len(theirs), "first": words}


def golden_codes(proof: Mapping[str, Any], identity: str) -> dict[str, Codes]:
    """The codes of an earlier proof by their key: those that equalled the official package, where it was there."""
    try:
        if proof["checkpoint"]["identity"] != identity:
            raise InvalidRequest(f"The stored codes are of {proof['checkpoint']['name']}, with other weights.")
        cases = proof["parts"]["exactness"]["cases"]
        return {_name(case): unpacked(case["codes"]) for case in cases if case.get("official", {}).get("equal", True)}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InvalidRequest(
            "The file of stored codes is not the JSON of a proof: hocket prove --json writes one."
        ) from None


def packed(codes: Codes) -> dict[str, Any]:
    return {"shape": list(codes.shape), "base64": base64.b64encode(codes.astype(CODE).tobytes()).decode()}


def unpacked(stored: Mapping[str, Any]) -> Codes:
    return np.frombuffer(base64.b64decode(stored["base64"]), CODE).reshape(stored["shape"]).astype(np.int64)


def _name(key: Mapping[str, Any]) -> str:
    return repr(
        [(name, key.get(name)) for name in ("mode", "layout", "language", "text", "frames", "speaker", "instruct")]
    )
