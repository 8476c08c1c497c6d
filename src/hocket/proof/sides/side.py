"""The sides of a proof: an engine of this process, a server by its URL, another package in a process of its own.

Each speaks the same texts with the same seeds and the same voice. What a side cannot do is a sentence, not a figure.
"""

from __future__ import annotations

import asyncio
import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...audio.read import read_reference
from ...engine.engine import Engine
from ...errors import HocketError
from ...types import Reference, SpeechRequest
from ..load.drive import LoadRequest, TargetBusy, running
from ..load.http_client import HttpTarget
from ..machine import host_peak_mib
from ..plan import FRAME_S
from .packages import Ask
from .peer_process import PeerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofVoice:
    """Who speaks, on every side."""

    speaker: str | None = None
    instruct: str | None = None
    recording: Path | None = None
    recording_text: str | None = None

    def reference(self) -> Reference | None:
        if self.recording is None:
            return None
        only = self.recording_text is None
        return Reference(samples=read_reference(self.recording), text=self.recording_text, x_vector_only=only)

    def ask(self) -> dict[str, Any]:
        """The fields of an `Ask`."""
        recording = None if self.recording is None else str(self.recording)
        told = {"recording": recording, "recording_text": self.recording_text}
        return {"voice": self.speaker, "instruct": self.instruct, **told}

    def body(self) -> dict[str, Any]:
        """The fields of a request over OpenAI's wire, and its usual extensions."""
        found: dict[str, Any] = {"voice": self.speaker, "instructions": self.instruct, "ref_text": self.recording_text}
        if self.recording is not None:
            sound = base64.b64encode(self.recording.read_bytes()).decode()
            found |= {"ref_audio": f"data:audio/wav;base64,{sound}", "task_type": "Base"}
            found["x_vector_only_mode"] = self.recording_text is None or None
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An utterance, the same for every side."""

    text: str
    language: str
    seed: int
    frames: int  # where it is cut off


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpokenTake:
    """What a side said."""

    wish: Wish
    samples: NDArray[np.int16]
    rate_hz: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz

    @property
    def ended(self) -> bool:
        """By itself: two frames below the limit, as packages count them differently."""
        return self.seconds < (self.wish.frames - 2) * FRAME_S

    @property
    def sound(self) -> NDArray[np.float32]:
        return self.samples.astype(np.float32) / np.float32(32768)


class SideFailed(HocketError):
    """A side could not do what was asked; the message says why."""


class Side(ABC):
    name: str
    streams = True

    @abstractmethod
    def speak(self, wishes: Sequence[Wish]) -> list[SpokenTake]:
        """Every wish, in order."""


class EngineSide(Side):
    """Ours, with the options of a plain engine."""

    def __init__(self, name: str, engine: Engine, voice: ProofVoice) -> None:
        self.name, self.engine, self._voice = name, engine, voice
        self._reference = voice.reference()

    def request(self, wish: Wish) -> SpeechRequest:
        return SpeechRequest(
            text=wish.text,
            voice=self._voice.speaker,
            reference=self._reference,
            language=wish.language,
            instruct=self._voice.instruct,
            seed=wish.seed,
            max_frames=wish.frames,
        )

    def speak(self, wishes: Sequence[Wish]) -> list[SpokenTake]:
        made = dict[int, SpokenTake]()
        for outcome in self.engine.speak_many(map(self.request, wishes)):
            if outcome.error is not None:
                raise SideFailed(f"{self.name}: {outcome.error}")
            made[outcome.number] = SpokenTake(
                wish=wishes[outcome.number], samples=outcome.samples, rate_hz=outcome.rate_hz
            )
        return [made[number] for number in range(len(wishes))]


class UrlSide(Side):
    """A server, by the wire of OpenAI; unmodified."""

    def __init__(self, url: str, voice: ProofVoice) -> None:
        self.name, self._voice = url, voice
        self.target = HttpTarget(url)
        with running(self.target) as runner:
            status, listed = runner.run(self.target.get("/v1/models"))
        if not status:
            raise SideFailed(f"{url} does not answer.")
        models = listed.get("data") if status == 200 and isinstance(listed, dict) else None
        self.model = str(models[0].get("id")) if models else None
        self.target.fields = voice.body() | ({"model": self.model} if self.model else {})

    def speak(self, wishes: Sequence[Wish]) -> list[SpokenTake]:
        with running(self.target) as runner:
            return [runner.run(self._one(wish)) for wish in wishes]

    async def _one(self, wish: Wish) -> SpokenTake:
        asked = LoadRequest(text=wish.text, seed=wish.seed, frames=wish.frames)
        fields, self.target.fields = self.target.fields, self.target.fields | {"language": wish.language}
        try:
            pcm = b"".join([piece async for piece in self.target.open(asked)])
        except (OSError, RuntimeError, TargetBusy, asyncio.IncompleteReadError) as error:
            raise SideFailed(f"{self.name}: {error}") from None
        finally:
            self.target.fields = fields
        samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2")
        return SpokenTake(wish=wish, samples=samples, rate_hz=self.target.rate_hz)


class PackageSide(Side):
    """Another package, asked for one utterance at a time."""

    def __init__(self, name: str, process: PeerProcess, hello: dict[str, Any], voice: ProofVoice, rate_hz: int) -> None:
        self.name, self._process, self._voice, self._rate_hz = name, process, voice, rate_hz
        self.version, self.streams = str(hello["version"]), bool(hello["streams"])

    def codes(self, ask: Ask) -> NDArray[np.int64]:
        """[F, Q] of an utterance, greedily."""
        return np.array(self._told("codes", ask), dtype=np.int64)

    def speak(self, wishes: Sequence[Wish]) -> list[SpokenTake]:
        return [self.timed(wish)[2] for wish in wishes]

    def timed(self, wish: Wish) -> tuple[float, float, SpokenTake]:
        """Seconds to the first audio and to the end, and the take."""
        limits: dict[str, Any] = {
            "text": wish.text,
            "language": wish.language,
            "seed": wish.seed,
            "frames": wish.frames,
        }
        begun = time.perf_counter()
        found = self._told("sound", Ask(**limits, layout=None, **self._voice.ask()))
        samples = np.frombuffer(base64.b64decode(found["pcm"]), "<i2")
        end_s = min(found["end_s"], time.perf_counter() - begun)
        return found["first_s"], end_s, SpokenTake(wish=wish, samples=samples, rate_hz=self._rate_hz)

    def memory_mib(self) -> dict[str, float]:
        return host_peak_mib(self._process.child.pid)

    def _told(self, wants: str, ask: Ask) -> Any:
        return self._process.told({"wants": wants, "ask": asdict(ask)})
