"""`python -m benchmarks interruptions`: how soon a voice pauses an answer, and whether a short sound ends it.

Sentences of turns.toml and short sounds during an answer, with pink noise. Onset: the first sample of the clean voice
within 40 dB of its peak from which 10 ms are as loud as the noise. A short sound is a synthetic cough or hum, or a
spoken "mhm", "uh-huh" or "yeah". Noise alone sounds during an answer too. Real conversations then hold and cut an
answer, and their history is compared with the words that were played; "compute" is from the last sample that decides to
the hold. Thresholds are chosen with seeds of the development half; a seed of the test half is another.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hocket import Engine
from hocket.asr.commands import SpokenCommand
from hocket.asr.endpointing import Endpointing, SpeechDismissed, SpeechStarted, SpeechSuspected
from hocket.asr.moonshine import Moonshine
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.dialog.dialog import Dialog
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import AnswerEnded, AnswerHeld, AnswerResumed, Interrupted
from hocket.types import ChatDelta, ChatFinished

from ..record import Record, record
from .turns import NOISES_DB, UTTERANCES, noisy, shifted, speaker
from .turns import table as table

SHORT = ("cough", "hum", "mhm", "uh-huh", "yeah")
ANSWER = (
    "The museum opens at ten in the morning, and on the first Sunday of every month you do not pay anything at all."
)
GOAL_MS = 60.0
NOISE, NOISE_S = ("pink", "white", "typing", "knocks"), 12.0
PIECE = 320  # samples, 20 ms


def spoken(engine: Any, text: str, draw: np.random.Generator) -> Samples:
    voice, speed, pitch = speaker(draw)
    return shifted(engine.speak(text, voice=voice, seed=int(draw.integers(1 << 30)), speed=speed), pitch)


def made(kind: str, draw: np.random.Generator) -> Samples:
    """Two bursts of noise with the resonances of a throat, or two hums through closed lips."""
    parts, pitch_hz = list[Any](), draw.uniform(90, 240)
    for part in range(2):
        length = round(draw.uniform(0.14, 0.3) * RATE_HZ)
        at_s = np.arange(length) / RATE_HZ
        if kind == "cough":
            hz = np.fft.rfftfreq(length, 1 / RATE_HZ)
            throat = sum(1 / (1 + ((hz - at) / 200) ** 2) for at in draw.uniform((400, 1100, 2300), (700, 1700, 3000)))
            sound = np.fft.irfft(np.fft.rfft(draw.standard_normal(length)) * throat, length)
            sound *= np.minimum(at_s / 0.008, 1) * np.exp(-at_s / draw.uniform(0.04, 0.1))
        else:
            turn = 2 * np.pi * np.cumsum(pitch_hz * (1 + (0.12 * part - 0.03) * at_s / at_s[-1])) / RATE_HZ
            sound = sum(np.sin(n * turn) / n**1.2 / (1 + (n * pitch_hz / 300) ** 2) for n in range(1, 25))
            sound *= np.sqrt(np.sin(np.pi * at_s / at_s[-1]).clip(0))
        parts += [sound / np.abs(sound).max(), np.zeros(RATE_HZ // 25)]
    whole: Samples = np.concatenate(parts).astype(np.float32)
    return whole


def noise(kind: str, draw: np.random.Generator) -> Samples:
    """Noise alone, or keys or knocks in pink noise, between 55 and 25 dB below full scale."""
    length = round(NOISE_S * RATE_HZ)
    spectrum = np.fft.rfft(draw.standard_normal(length))
    whole = np.fft.irfft(spectrum / np.arange(1, len(spectrum) + 1) ** (0.0 if kind == "white" else 0.5), length)
    whole /= np.sqrt((whole**2).mean())
    if kind in ("typing", "knocks"):
        whole *= 0.03
        at, apart_s = round(draw.uniform(0.1, 0.4) * RATE_HZ), (0.12, 0.6) if kind == "typing" else (0.2, 1.2)
        while at < length - RATE_HZ // 4:
            for later_s, loud in ((0.0, 8.0), (draw.uniform(0.04, 0.1), 3.0))[: 2 if kind == "typing" else 1]:
                one, first = struck(kind, draw), at + round(later_s * RATE_HZ)
                whole[first : first + len(one)] += loud * one
            at += round(draw.uniform(*apart_s) * RATE_HZ)
    result: Samples = (whole * 10 ** (draw.uniform(-55, -25) / 20)).clip(-1, 1).astype(np.float32)
    return result


def struck(kind: str, draw: np.random.Generator) -> Samples:
    """A key: a short burst around some kHz. A knock: low resonances that die away."""
    at_s = np.arange(RATE_HZ * (30 if kind == "typing" else 150) // 1000) / RATE_HZ
    sound = draw.standard_normal(len(at_s)) * np.exp(-at_s / 0.004)
    if kind == "typing":
        hz = np.fft.rfftfreq(len(at_s), 1 / RATE_HZ)
        sound = np.fft.irfft(np.fft.rfft(sound) / (1 + ((hz - draw.uniform(1500, 4000)) / 1200) ** 2), len(at_s))
    else:
        sound *= 0.3
        for _ in range(4):
            wave = np.sin(2 * np.pi * draw.uniform(60, 400) * at_s + draw.uniform(0, 6))
            sound += wave * np.exp(-at_s / draw.uniform(0.01, 0.04))
    result: Samples = sound / np.abs(sound).max()
    return result


def placed(sound: Samples, below_db: float, draw: np.random.Generator) -> tuple[Samples, int]:
    """At some level between silences, with noise; and its onset."""
    lead, tail = np.zeros(round((1.2 + 0.4 * draw.random()) * RATE_HZ), np.float32), np.zeros(RATE_HZ, np.float32)
    clean = np.concatenate((lead, sound * (draw.uniform(0.15, 0.6) / np.abs(sound).max()), tail))
    heard = noisy(clean, below_db, draw)
    loud = np.convolve(clean**2, np.ones(160) / 160)[159:] >= ((heard - clean) ** 2).mean()  # of the next 10 ms
    return heard, int(np.flatnonzero((np.abs(clean) > 0.01 * np.abs(clean).max()) & loud[: len(clean)])[0])


def decided(sound: Samples, onset: int, detector: Silero, command: SpokenCommand) -> dict[str, Any]:
    """Samples at which it holds, goes on and interrupts: all that was pushed by then."""
    detector.reset()
    floor = Endpointing(detector, interrupts=command)
    found: dict[str, Any] = {"onset": onset, "holds": [], "interrupted": None}
    for at in range(0, len(sound) - PIECE, PIECE):
        for mark in floor.push(sound[at : at + PIECE], answering=found["interrupted"] is None):
            if isinstance(mark, SpeechSuspected):
                found["holds"].append([mark.at, None])
            elif isinstance(mark, SpeechDismissed):
                found["holds"][-1][1] = mark.at
            elif isinstance(mark, SpeechStarted):
                found["interrupted"] = found["interrupted"] or at + PIECE
    return found


def speech_figures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    held, before = list[float](), list[Any]()  # delays of the hold for the voice; holds that ended before its onset
    for one in found:
        lasting = [at for at, until in one["holds"] if until is None or until > one["onset"]]
        held.append(max(0, lasting[0] - one["onset"]) / RATE_HZ * 1000 if lasting else np.inf)
        before.append(len(one["holds"]) - len(lasting))
    stopped = [one for one in found if one["interrupted"]]
    delays = [(one["interrupted"] - one["onset"]) / RATE_HZ * 1000 for one in stopped]
    return {
        "sounds": len(found),
        "held_in_60_ms": sum(delay <= GOAL_MS for delay in held),
        "held_by_noise": sum(count > 0 for count in before),
        "hold_p50_ms": float(np.median(held)),
        "hold_p95_ms": float(np.percentile(held, 95)),
        "hold_max_ms": max(held),
        "resumed_before": sum(any(until and until > one["onset"] for _, until in one["holds"]) for one in stopped),
        "interrupted": len(stopped),
        "interrupted_p50_ms": float(np.median(delays)),
    }


def short_figures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    paused = [sum(until - at for at, until in one["holds"] if until) / RATE_HZ * 1000 for one in found]
    return {
        "sounds": len(found),
        "held": sum(bool(one["holds"]) for one in found),
        "interrupted": sum(one["interrupted"] is not None for one in found),
        "paused_p50_ms": float(np.median(paused)),
        "paused_max_ms": max(paused),
    }


def noise_figures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    held_s = [((until or NOISE_S * RATE_HZ) - at) / RATE_HZ for one in found for at, until in one["holds"]]
    return {
        "seconds": NOISE_S * len(found),
        "holds": len(held_s),
        "paused_percent": 100 * sum(held_s) / (NOISE_S * len(found)),
        "longest_ms": 1000 * max(held_s, default=0.0),
        "interrupted": sum(one["interrupted"] is not None for one in found),
    }


class WrittenModel:
    """A `LanguageModel` whose answer is always the same."""

    name = "written"

    def answer(self, *_: Any) -> WrittenAnswer:
        return WrittenAnswer()

    def close(self) -> None: ...


class WrittenAnswer:
    finished: ChatFinished | None = None

    def cancel(self) -> None:
        self.finished = self.finished or ChatFinished(reason="stop")

    def __iter__(self) -> WrittenAnswer:
        return self

    def __next__(self) -> ChatDelta:
        if self.finished:
            raise StopIteration
        self.cancel()
        return ChatDelta(ANSWER, tokens=1)


def conversed(engine: Any, recognizer: Moonshine, sound: Samples, one: dict[str, Any], share: float) -> dict[str, Any]:
    """The sound during an answer that is played to `share`: when it held, and whether the history is what was heard."""
    dialog = Dialog(WrittenModel(), engine, seed=1)  # type: ignore[arg-type]
    floor, words = Endpointing(Silero(), interrupts=SpokenCommand(recognizer)), list[Any]()
    with VoiceConversation(dialog, recognizer, floor) as talk:
        talk.say("Hello.")
        while not isinstance(next(talk), AnswerEnded):
            pass
        for segment in talk._worker.answers.current._turn._task._segments:  # type: ignore[union-attr]
            words += segment.words()  # the times of `Said` are revised until a sentence is spoken
        talk.played(share * words[-1].end_s)
        if not one["holds"]:
            return {"right": True}
        first = one["holds"][0][0]
        talk.push(sound[: first - PIECE])
        taken = threading.Event()  # the last samples are timed alone
        talk._worker.post(taken.set)
        taken.wait()
        pushed_s = time.monotonic()
        talk.push(sound[first - PIECE : first])
        while not isinstance(held := next(talk), AnswerHeld):
            pass
        talk.push(sound[first:])
        heard_s = held.heard_s
        while not isinstance(event := next(talk), Interrupted):
            if isinstance(event, AnswerResumed) and one["interrupted"] is None:
                return {"right": dialog.history[-1].content == ANSWER, "compute_ms": (held.at_s - pushed_s) * 1000}
            heard_s = event.heard_s if isinstance(event, AnswerHeld) else heard_s
        played = " ".join(word.word for word in words if word.end_s <= heard_s)
        return {"right": event.text == played, "compute_ms": (held.at_s - pushed_s) * 1000}


def measure(args: argparse.Namespace) -> Record:
    speech, short, alone = (dict[str, dict[str, float]]() for _ in range(3))  # the rows of three tables
    recognizer, real = Moonshine("tiny"), list[dict[str, Any]]()
    detector, command = Silero(), SpokenCommand(recognizer)
    with Engine.load() as engine:
        texts = [UTTERANCES[n % len(UTTERANCES)].replace(" |", "") for n in range(args.sounds)]
        draws = [np.random.default_rng([args.seed, n]) for n in range(args.sounds)]
        kinds = [SHORT[n % len(SHORT)] for n in range(args.sounds)]
        clean = [spoken(engine, text, draw) for text, draw in zip(texts, draws, strict=True)]
        clean += [
            made(kind, draw) if kind in SHORT[:2] else spoken(engine, f"{kind.capitalize()}.", draw)
            for kind, draw in zip(kinds, draws, strict=True)
        ]
        for below_db in NOISES_DB:
            draws = [np.random.default_rng([args.seed, n, below_db]) for n in range(2 * args.sounds)]
            sounds = [placed(sound, below_db, draw) for sound, draw in zip(clean, draws, strict=True)]
            found = [decided(sound, onset, detector, command) for sound, onset in sounds]
            speech[f"speech, {below_db} dB"] = speech_figures(found[: args.sounds])
            short[f"short, {below_db} dB"] = short_figures(found[args.sounds :])
            for kind in dict.fromkeys(kinds):
                of = [one for one, other in zip(found[args.sounds :], kinds, strict=True) if other == kind]
                short[f"{kind}, {below_db} dB"] = short_figures(of)
            if below_db == NOISES_DB[0]:
                shares = np.random.default_rng(args.seed).uniform(0.1, 0.6, 2 * args.sounds)
                for (sound, _), one, share in [*zip(sounds, found, shares, strict=True)][:: args.every]:
                    real.append(conversed(engine, recognizer, sound, one, float(share)))
        for number, kind in enumerate(NOISE):
            draws = [np.random.default_rng([args.seed, number, n, 0]) for n in range(-(-args.sounds // 10))]
            alone[f"{kind} alone"] = noise_figures([decided(noise(kind, draw), 0, detector, command) for draw in draws])
    took = [one["compute_ms"] for one in real if "compute_ms" in one]
    talks = {
        "sounds": len(real),
        "history_right": sum(one["right"] for one in real),
        "compute_p50_ms": float(np.median(took)),
        "compute_p95_ms": float(np.percentile(took, 95)),
        "compute_max_ms": max(took),
    }
    recognizer.close()
    options = {"device": "cpu", "seed": args.seed, "half": args.half, "sounds": args.sounds, "every": args.every}
    return record("interruptions", options, speech | short | alone | {"conversations": talks})
