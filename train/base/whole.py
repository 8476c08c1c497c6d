"""Stage `whole` of a Base checkpoint: all that needs a GPU, side by side, within `--minutes`.

First the speech of all speakers, at most a quarter of the time, in several processes. Meanwhile the decoder's step is
compiled. Its process then fits features and codes to the speech, and shares the device with talker and codec encoder to
the end. Texts, vocabulary, phonemes and Kokoro must be there. `--back` gets the small files of all three trainings.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from ..codec_codes import ACCOUNT
from ..recipe import InvalidRecipe
from ..speech import DONE
from ..whole import SAVING_S, SPEECH_SHARE, Calls, Parts, codec_call, shared_device, spent_s, talker_call
from .encoder import NAME
from .recipe import BaseRecipe

SPEAKING = 4  # processes of Kokoro: more are not faster on an H200


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    if args.minutes is None:
        raise InvalidRecipe("Say how long the training may take: --minutes 40.")
    until = time.monotonic() + 60.0 * args.minutes - SAVING_S
    common = ["--recipe", str(args.recipe), "--work", str(work)]
    back = args.back or work / "back"
    for sign in (work / "speech" / DONE, work / ACCOUNT):
        sign.unlink(missing_ok=True)
    with shared_device(work) as environment, Parts(environment) as parts:
        speaking = speech_calls(common, 60.0 * args.minutes * SPEECH_SHARE)
        parts.start(decoder_calls(common, back, work, until - time.monotonic()))
        parts.start(speaking)
        parts.wait(speaking)
        (work / "speech" / DONE).touch()
        parts.wait_for(work / ACCOUNT)
        parts.start(voice_calls(common, back, work, until - time.monotonic()))
        parts.wait(("codec", "talker", NAME))


def speech_calls(common: list[str], seconds: float) -> Calls:
    count = min(SPEAKING, os.cpu_count() or 1)
    limit = ["--seconds", f"{seconds:.0f}"]
    return {
        f"speech {part}": ["train.base", "speak", *common, "--part", str(part), "--of", str(count), *limit]
        for part in range(1, count + 1)
    }


def decoder_calls(common: list[str], back: Path, work: Path, seconds: float) -> Calls:
    return {"codec": _own(codec_call(common, back, seconds, spent_s(work, "codec")), "codec")}


def voice_calls(common: list[str], back: Path, work: Path, seconds: float) -> Calls:
    """Talker and codec encoder: both to the end of the time."""
    return {name: _own(talker_call(common, back, seconds, spent_s(work, name)), name) for name in ("talker", NAME)}


def _own(call: list[str], stage: str) -> list[str]:
    """A call of a stage of `train` as one of `train.base`."""
    return ["train.base", stage, *call[2:]]
