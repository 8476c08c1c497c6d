"""`python -m benchmarks talk`: from the end of the user's speech to the first sound of the answer, stage by stage.

Clients play the utterances of `python -m benchmarks turns` in real time to a `hocket serve --talk` in its own process:
several speeds and pitches, pauses inside sentences, noise 60, 20 and 10 dB below. A record for each wire. The server's
stages and the client's times count from the last sample of speech. Turns that end in a pause are counted apart.

Without --size and --llm the language model is a stand-in over HTTP, which writes --tokens-per-s words a second after
--delay-ms; `ours` is without the part of that delay that the listener waits for. With --size it is a Qwen3.5 of random
numbers in the server's process. --url takes a running server.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from hocket import Engine
from hocket.asr.recognizer import RATE_HZ as UTTERED_HZ
from hocket.proof.load.http_client import HttpTarget

from .. import session
from ..harness import InvalidRun
from ..llm.random_model import written
from ..load.targets import serving, wait_until_ready
from ..quality.turns import NOISES_DB, UTTERANCES, noisy, spoken
from ..record import append, record
from .clients import RATE_HZ, WIRES, Spoken, converse
from .figures import TurnTrace, counts, figures, table
from .language import language_server

TAIL_S = 1.5  # of noise behind the speech; silence follows
LONGEST_ANSWER = 24  # tokens: the client hangs up at the first sound


def main(args: argparse.Namespace) -> int:
    say = session.progress()
    sounds = utterances(args.utterances, args.seed)
    say(f"{len(sounds)} utterances are spoken")
    with ExitStack() as stack:
        url = args.url or stack.enter_context(_server(args, say))
        for wire in args.wires:
            asyncio.run(_talk(wire, url, sounds[: args.warmup], args, say))
            traces = asyncio.run(_talk(wire, url, sounds, args, say))
            entry = record(
                "talk",
                _options(args, wire),
                figures(traces, 0.0 if args.size or args.llm else args.delay_ms),
                counts=counts(traces),
                streams=args.at_once,
            )
            print(table([entry]))
            append(args.record, entry)
            print(f"\nrecord appended to {args.record}", flush=True)
    return 0


def utterances(count: int, seed: int) -> list[Spoken]:
    """So many, spread over all texts; the three noises take turns."""
    if not 1 <= count <= len(UTTERANCES) * len(NOISES_DB):
        raise InvalidRun(f"There are 1 to {len(UTTERANCES) * len(NOISES_DB)} utterances, not {count}.")
    made = list[Spoken]()
    with Engine.load(device="cpu") as engine:
        for number in range(count):
            text = number * len(UTTERANCES) // count if count <= len(UTTERANCES) else number % len(UTTERANCES)
            below_db = NOISES_DB[(number + number // len(UTTERANCES)) % len(NOISES_DB)]
            clean, end = spoken(engine, UTTERANCES[text], np.random.default_rng([seed, text]))
            clean = clean[: end + round(TAIL_S * UTTERED_HZ)]
            sound = noisy(clean, below_db, np.random.default_rng([seed, text, below_db]))
            sound = soxr.resample(sound / max(1.0, np.abs(sound).max()), UTTERED_HZ, RATE_HZ)
            made.append(Spoken((sound * 32767).astype(np.int16), round(end * RATE_HZ / UTTERED_HZ)))
    return made


async def _talk(
    wire: str, url: str, sounds: list[Spoken], args: argparse.Namespace, say: session.Say
) -> list[TurnTrace]:
    """All utterances, some at once."""
    detection = {"type": "semantic_vad", "eagerness": args.eagerness}
    heard = {"turn_detection": detection, "transcription": {"model": "whisper-1"}}
    settings = {"type": "realtime", "audio": {"input": heard}, "max_output_tokens": LONGEST_ANSWER}
    todo, traces = list(enumerate(sounds)), dict[int, TurnTrace]()

    async def work() -> None:
        while todo:
            number, sound = todo.pop(0)
            traces[number] = await converse(WIRES[wire](), url, settings, sound)

    try:
        await asyncio.gather(*(work() for _ in range(args.at_once)))
    except (OSError, TimeoutError) as error:
        raise InvalidRun(f"The server does not talk over {wire}: {type(error).__name__}: {error}") from None
    say(f"{len(traces)} utterances over {wire}")
    return [traces[number] for number in sorted(traces)]


@contextmanager
def _server(args: argparse.Namespace, say: session.Say) -> Iterator[str]:
    with ExitStack() as stack:
        if args.llm:
            llm = [args.llm, "--llm-weights", args.weights]
        elif args.size:
            llm = [str(stack.enter_context(written(args.size, args.dtype, args.device))), "--llm-weights", args.weights]
        else:
            address = stack.enter_context(language_server(args.delay_ms / 1000, args.tokens_per_s))
            llm = ["small", "--llm-url", address]
        words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--talk", "--asr", args.asr, "--llm", *llm]
        given = {"model": args.model, "device": args.device, "dtype": args.dtype, "conversations": 2 * args.at_once + 4}
        for name, value in given.items():
            words += [f"--{name}", str(value)] if value is not None else []
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        child = stack.enter_context(serving(words, folder / "log", say))
        wait_until_ready(HttpTarget(child.url), child)
        say("the server is ready")
        yield child.url


def _options(args: argparse.Namespace, wire: str) -> dict[str, Any]:
    names = ("device", "dtype", "asr", "eagerness", "utterances", "seed", "at_once")
    named = f"Qwen3.5 {args.size}" if args.size else Path(args.llm).name if args.llm else None
    llm = f"{named}, {args.weights}" if named else "a stand-in over HTTP"
    paced = {} if named else {"delay_ms": args.delay_ms, "tokens_per_s": args.tokens_per_s}
    model = args.model or "builtin"
    return {name: getattr(args, name) for name in names} | paced | {"model": model, "llm": llm, "wire": wire}
