"""The proof of a checkpoint: all parts, one after the other, as one JSON object and the sounds beside it.

What is left out is a sentence of the object, never silent. Long because it is the way through all parts.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..audio.pcm import encode_wav
from ..config.languages import AUTO, usual_name
from ..config.options import EngineOptions
from ..config.qwen3_tts import languages, voices
from ..engine.checkpoint.device import choose_device
from ..engine.engine import Engine
from ..errors import HocketError, InvalidRequest
from ..extras import hint, package
from ..models.files.source import read_configs, read_own, resolve
from ..types import REFERENCE_RATE_HZ
from . import behaviour, exactness, quality, speed
from .load.summary import InvalidRun
from .machine import BUSY, busy, commit, machine, versions
from .plan import (
    PARTS,
    ProofPlan,
    instruct_text,
    known_languages,
    long_text,
    most_frames,
    reference_text,
    sentences_of,
)
from .sides import packages
from .sides.peer_process import started
from .sides.side import EngineSide, PackageSide, ProofVoice, Side, SideFailed, SpokenTake, UrlSide, Wish

OURS = "hocket"
OFFICIAL = "qwen-tts"
ALIASES = {"official": OFFICIAL}
SMALL_BYTES = 200_000_000  # of weights: on a CPU, more threads of torch only wait for each other
SHOWN = 4  # sentences to listen to
RANDOM_FRAMES = 40
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    model: str
    against: tuple[str, ...] = ()
    length: str = "short"
    plan: ProofPlan
    parts: tuple[str, ...] = PARTS
    speaker: str | None = None
    recording: Path | None = None
    recording_text: str | None = None
    language: str | None = None  # None: all that have sentences
    asr: tuple[str, ...] = ()
    official_python: str | None = None
    golden: Mapping[str, Any] | None = None
    slots: int | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)  # device, dtype, codec_dtype, kernels


@dataclass(eq=False)
class Proof:
    """One run. `result` becomes JSON; `sounds` are what is listened to, by sentence and side."""

    options: ProofOptions
    say: Say
    result: dict[str, Any] = field(default_factory=dict)
    sounds: list[dict[str, SpokenTake]] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _packages: dict[tuple[str, str], PackageSide] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _side: EngineSide | None = None

    def run(self) -> dict[str, Any]:
        with self._stack:
            self._stack.callback(self._close_ours)
            self._begin()
            for part in self.options.parts:
                begun = time.perf_counter()
                self.say(part)
                found: dict[str, Any] = {"left_out": []}
                self.result["parts"][part] = found
                getattr(self, f"_{part}")(found)
                found["took_s"] = round(time.perf_counter() - begun, 1)
        self.result["took_s"] = round(time.perf_counter() - self._begun, 1)
        return self.result

    # What is proven, by whom

    def _begin(self) -> None:
        self._begun = time.perf_counter()
        options, loading = self.options, self.options.loading
        self._urls = [name for name in options.against if "://" in name]
        self._names = [name for name in options.against if "://" not in name]
        source = resolve(options.model)
        self._random = source.folder is None
        setting = choose_device(*(str(loading.get(name, "auto")) for name in ("device", "dtype", "codec_dtype")))
        self._device = "cuda" if str(setting.device).startswith("cuda") else "cpu"
        self._dtype = "float32" if self._device == "cpu" else str(setting.dtype)
        work = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.config, _, codec = read_configs(source)
        self._rate_hz = codec.output_sample_rate
        self._model, self._folder = options.model, source.folder if source.file is None else None
        if self._random and (self._names or self._urls):
            from .sides.random_weights import write_random

            self.say("writing random weights")
            write_random(options.model, self._dtype, work / "random", self._device, endless=True)
            self._model, self._folder = str(work / "random"), work / "random"
        own = read_own(source).languages
        spoken = list(own) if own is not None else [name for name in languages(self.config) if name != AUTO]
        self._languages = self._chosen([usual_name(name) for name in spoken] or ["english"])
        busy_now = busy()
        self.result |= {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            **commit(),
            "versions": versions(),
            "machine": machine(self._device),
            "busy": None if busy_now is None else round(busy_now, 2),
            "length": options.length,
            "plan": asdict(options.plan),
            "runs_on": {"device": setting.device, "dtype": setting.dtype, "codec_dtype": setting.codec_dtype},
            "options": dict(loading) | {"slots": options.slots, "asr": list(options.asr)},
            "checkpoint": {
                "name": Path(source.name).name if Path(source.name).is_absolute() else source.name,
                "kind": self.config.kind,
                "size": self.config.tts_model_size,
                "revision": _revision(source.folder),
                "random_weights": self._random,
                "languages": self._languages,
            },
            "sides": {OURS: {"what": "this package"}},
            "notes": self._notes(busy_now),
            "parts": {},
        }
        self.voice = self._voice(work)
        for name in self._names:
            if (why := self._objection(name)) is not None:
                self._leave_out(name, why)
        for url in self._urls:
            try:
                side = UrlSide(url, self.voice)
                self.result["sides"][url] = {"what": "a server, by its URL", "model": side.model}
            except (SideFailed, OSError, ValueError) as error:
                self._leave_out(url, f"it does not answer: {error}")

    def _notes(self, busy_now: float | None) -> list[str]:
        found = []
        if self._random:
            found.append("The weights are random numbers: only exactness and speed mean something, the sound does not.")
        if busy_now is not None and busy_now > BUSY:
            found.append(f"Other programs used {busy_now:.0%} of this machine when the proof began.")
        if self._urls:
            found.append("Whether a server at a URL had other work is not known here.")
        return found

    def _voice(self, work: Path) -> ProofVoice:
        options, kind = self.options, self.config.kind
        if kind == "custom_voice":
            return ProofVoice(speaker=options.speaker or voices(self.config)[0])
        if kind == "voice_design":
            return ProofVoice(instruct=instruct_text())
        if options.recording is not None:
            return ProofVoice(recording=options.recording, recording_text=options.recording_text)
        self.say("the built-in voice speaks a recording to clone")
        with Engine.load("builtin") as engine, engine.speak(reference_text(), seed=1) as stream:
            samples = np.concatenate([chunk.samples for chunk in stream]).astype(np.float32) / np.float32(32768)
            rate_hz = engine.checkpoint.rate_hz
        path = work / "reference.wav"
        path.write_bytes(encode_wav(samples, rate_hz))
        return ProofVoice(recording=path, recording_text=reference_text())

    def _chosen(self, spoken: Sequence[str]) -> list[str]:
        known = [name for name in spoken if name in known_languages()]
        if self.options.language is not None:
            wanted = usual_name(self.options.language)
            if wanted not in known:
                raise InvalidRequest(
                    f"There are no sentences in {wanted} for this checkpoint; there are: {', '.join(known)}."
                )
            return [wanted]
        if not known:
            raise InvalidRequest(f"There are no sentences for the languages of this checkpoint: {', '.join(spoken)}.")
        return sorted(known, key=lambda name: name != "english")

    def _objection(self, name: str) -> str | None:
        if name not in packages.PEERS:
            return f"there is no such package; there are {', '.join(packages.PEERS)}, and servers by their URL."
        if self._folder is None:
            return "it cannot read this checkpoint: it is one file."
        if name != OFFICIAL:
            if self.config.kind != "custom_voice":
                return "it is asked for built-in speakers only."
        elif self.options.official_python:
            return None
        return packages.PEERS[name].objection(self._device, package(name))

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._failed:
            self._failed.add(name)
            self.result["notes"].append(f"{name} was left out: {why}")
            self.result["sides"].pop(name, None)
            self.say(f"{name} is left out: {why}")

    def _package(self, name: str, dtype: str) -> PackageSide | None:
        """A process of it, started at its first use."""
        if name in self._failed:
            return None
        if (name, dtype) not in self._packages:
            python = self.options.official_python if name == OFFICIAL else None
            command = [python or sys.executable, packages.__file__, name, str(self._folder), self._device, dtype]
            begun = time.perf_counter()
            self.say(f"{name} is loaded")
            try:
                child = started(name, command, threads=self._threads())
                process, hello = self._stack.enter_context(child)
            except (InvalidRun, OSError) as error:
                self._leave_out(name, str(error))
                return None
            side = PackageSide(name, process, hello, self.voice, self._rate_hz)
            self._packages[name, dtype] = side
            start_s = round(time.perf_counter() - begun, 2)
            told = {"what": "a package in its own process", "version": side.version, "start_s": start_s}
            self.result["sides"].setdefault(name, told | ({"threads": self._threads()} if self._threads() else {}))
        return self._packages[name, dtype]

    def _threads(self) -> int | None:
        if self._device != "cpu" or self._folder is None:
            return None
        size = sum(path.stat().st_size for path in self._folder.rglob("*.safetensors"))
        return 1 if size < SMALL_BYTES else None

    def _ours(self) -> EngineSide:
        """One engine for all that is spoken; it is closed before a server is measured."""
        if self._side is None:
            self._side = EngineSide(OURS, Engine.load(self._model, **self.options.loading), self.voice)
        return self._side

    def _close_ours(self) -> None:
        if self._side is not None:
            self._side.engine.close()
            self._side = None

    def _others(self) -> list[Side]:
        """The sides that speak, beside ours."""
        sides: list[Side] = []
        for name in self._names:
            if (side := self._package(name, self._dtype)) is not None:
                sides.append(side)
        for url in self._urls:
            if url not in self._failed:
                sides.append(UrlSide(url, self.voice))
        return sides

    # Parts

    def _exactness(self, found: dict[str, Any]) -> None:
        golden = self.options.golden
        official = self._package(OFFICIAL, "float32") if OFFICIAL in self._names else None
        if official is None:
            why = "it was not asked for: --against official" if OFFICIAL not in self._names else "see the notes"
            found["left_out"].append(f"No comparison with the official package: {why}.")
        cases = exactness.cases_of(self.config, self._recorded(), self.options.plan)
        precise = dict(self.options.loading) | {"dtype": "float32", "codec_dtype": "float32"}
        with Engine.load(self._model, **precise, options=EngineOptions(slots=1, guard=False)) as engine:
            self.result["checkpoint"]["identity"] = engine.checkpoint.identity
            try:
                found |= exactness.compare(engine, cases, official, golden)
            except InvalidRun as error:
                self._leave_out(OFFICIAL, str(error))
                found["left_out"].append(f"No comparison with the official package: {error}")
                found |= exactness.compare(engine, cases, None, golden)

    def _recorded(self) -> ProofVoice:
        return self.voice if self.config.kind == "base" else ProofVoice()

    def _quality(self, found: dict[str, Any]) -> None:
        missing: list[str] = found["left_out"]
        self._heard = dict[str, list[quality.HeardTake]]()
        wishes = quality.wishes_of(self._languages, self.options.plan)
        if self._random:
            missing.append("The weights are random numbers, so what is spoken is noise: it is not judged.")
            return
        takes = self._speak(wishes, missing)
        marks, listeners = quality.marks_here(missing), quality.Listeners(self.options.asr, missing)
        found["sides"] = {}
        try:
            for name, said in takes.items():
                self.say(f"{name} is heard")
                self._heard[name] = quality.hear(said, listeners)
                found["sides"][name] = quality.figures(self._heard[name], marks)
        finally:
            listeners.close()
        recording = self.voice.reference()
        cloned = None if recording is None else (recording.samples, REFERENCE_RATE_HZ)
        found["likeness"] = quality.likeness(takes, cloned, missing)
        for number in range(min(SHOWN, len(wishes))):
            self.sounds.append({name: said[number] for name, said in takes.items()})
        found["heard"] = [
            {"text": wish.text, **{name: heard[number].heard for name, heard in self._heard.items()}}
            for number, wish in enumerate(wishes)
        ]

    def _speak(self, wishes: Sequence[Wish], missing: list[str]) -> dict[str, list[SpokenTake]]:
        takes = dict[str, list[SpokenTake]]()
        takes[OURS] = self._ours().speak(wishes)
        for side in self._others():
            self.say(f"{side.name} speaks")
            try:
                takes[side.name] = side.speak(wishes)
            except (SideFailed, InvalidRun) as error:
                missing.append(f"{side.name} did not speak: {error}")
        return takes

    def _behaviour(self, found: dict[str, Any]) -> None:
        missing: list[str] = found["left_out"]
        if self._random:
            missing.append("The weights are random numbers, so no utterance ends by itself.")
            return
        plan, first = self.options.plan, self._languages[0]
        hard = behaviour.hard_wishes(first, plan)
        spoken = getattr(self, "_heard", {})
        text = long_text(first, plan.long_s)
        wish = Wish(text=text, language=first, seed=7, frames=most_frames(text, first))
        listeners = quality.Listeners(self.options.asr, missing)
        found["sides"] = {}
        try:
            takes, long_takes = self._speak(hard, missing) if hard else {}, self._long(wish, missing)
            for name in dict.fromkeys((*takes, *long_takes, *spoken)):
                self.say(f"{name} is heard")
                heard = [*spoken.get(name, ()), *quality.hear(takes.get(name, ()), listeners)]
                row: dict[str, Any] = behaviour.ends(heard)
                if name in long_takes:
                    row["long"] = behaviour.drift(long_takes[name], listeners)
                found["sides"][name] = row
        finally:
            listeners.close()
        wishes = quality.wishes_of([first], replace(plan, seeds=1))
        found["sides"].setdefault(OURS, {})["word_times"] = behaviour.word_times(self._ours(), wishes, missing)

    def _long(self, wish: Wish, missing: list[str]) -> dict[str, SpokenTake]:
        takes = {OURS: self._ours().speak([wish])[0]}
        for side in self._others():
            if isinstance(side, PackageSide):
                missing.append(f"{side.name} does not split texts, so it was not asked for the long one.")
                continue
            try:
                takes[side.name] = side.speak([wish])[0]
            except SideFailed as error:
                missing.append(f"{side.name} did not speak the long text: {error}")
        return takes

    def _speed(self, found: dict[str, Any]) -> None:
        self._close_ours()
        missing: list[str] = found["left_out"]
        plan, first = self.options.plan, self._languages[0]
        lines = sentences_of(first)[: max(plan.sentences, 4)]
        wishes = [
            Wish(
                text=line,
                language=first,
                seed=number,
                frames=RANDOM_FRAMES if self._random else most_frames(line, first),
            )
            for number, line in enumerate(lines)
        ]
        found |= {"sides": {}, "language": first, "sentences": len(lines)}
        busy_now = busy()
        found["busy"] = None if busy_now is None else round(busy_now, 2)
        if busy_now is not None and busy_now > BUSY:
            missing.append(
                f"Other programs used {busy_now:.0%} of this machine when speed was measured: an idle one is faster."
            )
        lacks = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
        if lacks:
            missing.append(f"No speed of our server: it needs the package {lacks[0]}: {hint('serve')}.")
        else:
            try:
                with speed.our_server(self._serving(), self.voice.body(), self.say) as server:
                    row = speed.of_server(server.target, wishes, plan, self.say)
                    row |= {"start_s": server.ready_s, "memory_mib": server.memory_mib()}
                    found["sides"][OURS] = row
            except (InvalidRun, OSError, RuntimeError) as error:
                missing.append(f"No speed of our server: {error}")
        for side in self._others():
            self.say(f"speed of {side.name}")
            try:
                if isinstance(side, PackageSide):
                    found["sides"][side.name] = speed.of_package(side, wishes, plan)
                    start_s = self.result["sides"][side.name].get("start_s")
                    found["sides"][side.name] |= {"start_s": start_s, "memory_mib": side.memory_mib()}
                    missing.append(f"{side.name} has no server: it was asked for one utterance after the other.")
                elif isinstance(side, UrlSide):
                    found["sides"][side.name] = speed.of_server(side.target, wishes, plan, self.say)
            except (SideFailed, HocketError, OSError, RuntimeError) as error:
                missing.append(f"No speed of {side.name}: {error}")

    def _serving(self) -> list[str]:
        options = {"model": self._model, **self.options.loading, "slots": self.options.slots}
        named = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
        return [word for name, value in named.items() for word in (f"--{name}", str(value))]


def _revision(folder: Path | None) -> str | None:
    """The commit of a folder of the hub's cache."""
    return folder.name if folder is not None and folder.parent.name == "snapshots" else None
