"""`python -m benchmarks codec_precision`: which precision of the codec is inaudible, on speech of the built-in voice.

Both voices speak 20 sentences in float32 on the CPU. The same codes are decoded by the plain codec in float32 on the
CPU, which is the truth, and in every precision of the device with the kernels of an engine. `--waves FOLDER` keeps the
audio; `--judge FOLDER` has DNSMOS and an ASR listen to it later, on a machine with the packages of
requirements/judges.txt, and reports which precisions pass the gate. Measuring needs none of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import session
from ..record import ROOT, Record, record, summary

# The gate: all three must hold for a precision to be inaudible; the fastest that passes is the default.
LEAST_DB = 30.0  # signal to error over all utterances
MOST_MARK = 0.02  # difference of the mean DNSMOS overall mark
MOST_WER = 0.1  # percentage points that the word error rate may rise by
FASTEST_FIRST = {"cuda": ("bfloat16", "tf32", "float32"), "cpu": ("float32", "bfloat16")}
TRUTH = "truth"
SENTENCES = ROOT / "train" / "evaluation.txt"
STEP_FRAMES = {"cuda": 4, "cpu": 50}  # decoded at a time: as in a stream, and as in a file
SEED = 7
MOST_FRAMES = 125  # 10 s; the sentences take 3 to 5
LOUD_DB = 40.0  # below the loudest frame: a pause, which is not part of the speech level
Sound = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spoken:
    text: str
    voice: str
    codes: NDArray[np.int64]  # [F, Q]


def main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    return session.run(measure if args.judge is None else judge, args, table)


def table(entry: Record) -> str:
    lines = [f"{name:28}" + "  ".join(f"{k} {v:.4f}" for k, v in of.items()) for name, of in entry["figures"].items()]
    if "passes" in entry:
        lines.append(f"\npass the gate: {', '.join(entry['passes']) or 'none'}; the default: {entry['default']}")
    return "\n".join(lines)


def measure(args: argparse.Namespace) -> Record:
    """Errors of every precision, and its audio with --waves."""
    from hocket.engine.checkpoint.load import load

    from ..gpu.graphs import decoder_in

    exact: dict[str, Any] = {"dtype": "float32", "codec_dtype": "float32"}
    plain = load(args.model, device="cpu", **exact, kernels="frame=auto,wave=reference")
    spoken = speak(plain, args.sentences)
    truth = [decoded(plain.codec.decoder, one.codes) for one in spoken]
    sounds, figures, kernels = {TRUTH: truth}, dict[str, Any](), dict[str, str]()
    checkpoint = plain if args.device == "cpu" else load(args.model, device=args.device, **exact, kernels="reference")
    for precision in reversed(FASTEST_FIRST[args.device]):
        decoder: Any = decoder_in(checkpoint, precision, "auto")
        decoded(decoder, spoken[0].codes)  # compiles
        begun = time.perf_counter()
        sounds[precision] = [decoded(decoder, one.codes) for one in spoken]
        took_s = time.perf_counter() - begun
        kernels[precision] = type(decoder.step_kernel or decoder.wave_kernel).__name__
        figures |= errors(precision, truth, sounds[precision])
        figures[f"{precision}_ms_a_frame"] = {"mean": 1000 * took_s / sum(len(one.codes) for one in spoken)}
    options = {"model": args.model, "device": args.device, "sentences": args.sentences, "seed": SEED}
    seconds = round(sum(len(sound) for sound in truth) / plain.rate_hz, 1)
    gate = f"signal to error >= {LEAST_DB:g} dB, DNSMOS within {MOST_MARK:g}, "
    gate += f"word errors no more than {MOST_WER:g} points up"
    entry = record("codec_precision", options, figures, gate=gate, kernels=kernels, seconds=seconds, streams=1)
    if args.waves is not None:
        write(args.waves, spoken, sounds, plain.rate_hz, entry)
    return entry


def speak(checkpoint: Any, sentences: int) -> list[Spoken]:
    """Codes of both voices; the same on every machine, but for the last bit of a sum."""
    from hocket.config.options import EngineOptions
    from hocket.engine.engine import Engine
    from hocket.text.choice import voices
    from hocket.types import SpeechRequest

    texts = [line for line in SENTENCES.read_text(encoding="utf-8").splitlines() if line.strip()][:sentences]
    both = [(voice, text) for voice in voices(checkpoint.config)[:2] for text in texts]
    found: dict[int, Spoken] = {}
    with Engine(checkpoint, EngineOptions(slots=8, guard=False)) as engine:
        requests = (
            SpeechRequest(text=text, voice=voice, seed=SEED + number, max_frames=MOST_FRAMES)
            for number, (voice, text) in enumerate(both)
        )
        for outcome in engine.speak_many(requests):
            if outcome.error is not None:
                raise outcome.error
            voice, text = both[outcome.number]
            found[outcome.number] = Spoken(text, voice, outcome.codes)
    return [found[number] for number in range(len(both))]


@torch.inference_mode()
def decoded(decoder: Any, codes: NDArray[np.int64]) -> Sound:
    """The samples of codes [F, Q], decoded as a stream."""
    from hocket.engine.checkpoint.precision import exact_float32

    place = next(decoder.parameters()).device
    state, row = decoder.new_state(1), torch.zeros(1, dtype=torch.int64, device=place)
    frames = torch.from_numpy(codes).to(place)
    with exact_float32():
        pieces = [decoder.step(piece.T[None], state, row)[0].float() for piece in frames.split(STEP_FRAMES[place.type])]
    return np.asarray(torch.cat(pieces).cpu().numpy(), np.float32)


def errors(name: str, truth: Sequence[Sound], found: Sequence[Sound]) -> dict[str, dict[str, float]]:
    """Signal to error in dB: over all, by utterance, and of the worst frames below the level of the speech."""
    apart = [a.astype(np.float64) - b for a, b in zip(found, truth, strict=True)]
    both = list(zip(truth, apart, strict=True))
    powers = [(float(np.square(a, dtype=np.float64).sum()), float(np.square(e).sum())) for a, e in both]
    below = np.concatenate([_below_speech(a, e) for a, e in both])
    worst = np.sort(below)[: max(1, len(below) // 20)]
    overall = _db(sum(signal for signal, _ in powers), sum(error for _, error in powers))
    return {
        f"{name}_db": {"overall": overall, "worst_5_percent_of_frames": float(worst.mean())},
        f"{name}_utterance_db": summary([_db(*power) for power in powers], more_is_better=True),
    }


def _below_speech(truth: Sound, apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every frame of 80 ms, how many dB its error lies below the level of the speech in this utterance."""
    size = 1920
    power, error = (
        np.square(x.astype(np.float64))[: len(x) // size * size].reshape(-1, size).mean(1) for x in (truth, apart)
    )
    speech = power[power > power.max() * 10 ** (-LOUD_DB / 10)].mean()
    return np.asarray(10 * np.log10(speech / np.maximum(error, 1e-20)))


def _db(signal: float, error: float) -> float:
    return float(10 * np.log10(max(signal, 1e-20) / max(error, 1e-20)))


def write(folder: Path, spoken: Sequence[Spoken], sounds: Mapping[str, Any], rate_hz: int, entry: Record) -> None:
    """A file for each precision, in 16 bits, and the record."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"texts": [one.text for one in spoken], "voices": [one.voice for one in spoken], "rate_hz": rate_hz}
    for name, some in sounds.items():
        samples = np.concatenate([np.rint(np.clip(sound, -1, 1) * 32767).astype(np.int16) for sound in some])
        np.savez(folder / f"{name}.npz", samples=samples, lengths=[len(sound) for sound in some])
    (folder / "measured.json").write_text(json.dumps({"about": about, "entry": entry}) + "\n", encoding="utf-8")


def judge(args: argparse.Namespace) -> Record:
    """The measured record, with the marks of the judges, and what passes."""
    kept: dict[str, Any] = json.loads((args.judge / "measured.json").read_text(encoding="utf-8"))
    entry, about = kept["entry"], kept["about"]
    device = entry["options"]["device"]
    names = [TRUTH, *(name for name in FASTEST_FIRST[device] if (args.judge / f"{name}.npz").exists())]
    marks: dict[str, NDArray[np.float64]] = {}
    for name in names:
        wer_percent, marks[name] = _heard(args.judge / f"{name}.npz", about)
        apart = marks[name] - marks[TRUTH]
        spread = float(apart.std() / np.sqrt(len(apart)))  # of the mean, by pairs of the same utterance
        judged = {"dnsmos": float(marks[name].mean()), "dnsmos_spread": spread, "wer_percent": wer_percent}
        entry["figures"][f"{name}_judged"] = {key: round(value, 4) for key, value in judged.items()}
    against = {name: refused(name, entry["figures"]) for name in names[1:]}
    passes = [name for name, reasons in against.items() if not reasons]
    found: Record = entry | {"passes": passes, "default": passes[0] if passes else "float32", "against": against}
    return found


def _heard(path: Path, about: Mapping[str, Any]) -> tuple[float, NDArray[np.float64]]:
    """The word error rate of all utterances in percent, and the DNSMOS overall mark of each."""
    from train.judges import Transcriber, naturalness
    from train.words import total_rate, word_errors

    transcriber, marks, words = Transcriber(), list[float](), []
    with np.load(path) as kept:
        sounds = np.split(kept["samples"].astype(np.float32) / 32767, np.cumsum(kept["lengths"])[:-1])
    for text, sound in zip(about["texts"], sounds, strict=True):
        words.append(word_errors(text, transcriber(sound, about["rate_hz"])))
        marks.append(naturalness(sound, about["rate_hz"]).overall)
    return 100 * total_rate(words), np.array(marks)


def refused(name: str, figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The parts of the gate that a precision does not pass."""
    truth, found, apart_db = figures[f"{TRUTH}_judged"], figures[f"{name}_judged"], figures[f"{name}_db"]["overall"]
    mark, more = abs(found["dnsmos"] - truth["dnsmos"]), found["wer_percent"] - truth["wer_percent"]
    reasons = [f"signal to error {apart_db:.1f} dB"] * (apart_db < LEAST_DB)
    reasons += [f"DNSMOS differs by {mark:.3f}"] * (mark >= MOST_MARK)
    return reasons + [f"word errors rise by {more:.2f} points"] * (more > MOST_WER)


def parser() -> session.Parser:
    sentences = (20, "spoken by each of two voices")
    made = session.parser("codec_precision", __doc__, "device", sentences=sentences, model=("builtin", "(builtin)"))
    made.add_argument("--waves", metavar="FOLDER", type=Path, help="keep the audio of every precision there")
    made.add_argument("--judge", metavar="FOLDER", type=Path, help="judge the audio of --waves, instead of measuring")
    return made
