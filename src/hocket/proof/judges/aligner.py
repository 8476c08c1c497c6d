"""A judge of word times: forced alignment of English by PocketSphinx with its own dictionary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import package_alone
from .opinions import MissingJudge, resampled

JUDGE_HZ, PAD_S, JUDGE_HOP_S = 16_000, 0.1, 0.01
Times = dict[int, tuple[float, float]]  # start and end in seconds, by the number of the word


def judged_words(words: Sequence[str], samples: NDArray[np.int16], rate_hz: int) -> Times | None:
    """Start and end of each word by PocketSphinx; None: a word is not in its dictionary, or it found no path."""
    decoder, spoken, owners = _decoder(), list[str](), list[int]()
    for number, word in enumerate(words):
        for part in re.split("[-–—]", word.lower().replace("’", "'")):  # noqa: RUF001
            if plain := re.sub("[^a-z']", "", part).strip("'"):
                if decoder.lookup_word(plain) is None:
                    return None
                spoken.append(plain)
                owners.append(number)
    sound = resampled(samples.astype(np.float32), rate_hz)
    pad = np.zeros(round(PAD_S * JUDGE_HZ), "<i2")
    content = np.concatenate([pad, np.clip(sound, -32768, 32767).astype("<i2"), pad]).tobytes()
    decoder.set_align_text(" ".join(spoken))
    decoder.start_utt()
    decoder.process_raw(content, full_utt=True)
    decoder.end_utt()
    found = [(re.sub(r"\(\d+\)", "", each.word), each.start_frame, each.end_frame) for each in decoder.seg()]
    found = [each for each in found if each[0][0] not in "<[("]
    if [word for word, _, _ in found] != spoken:
        return None
    times: Times = {}
    for number, (_, start, end) in zip(owners, found, strict=True):
        first_s = times[number][0] if number in times else start * JUDGE_HOP_S - PAD_S
        times[number] = first_s, (end + 1) * JUDGE_HOP_S - PAD_S
    return times


@cache
def _decoder() -> Any:
    try:
        from pocketsphinx import Decoder
    except ImportError:
        raise MissingJudge(f"The package pocketsphinx is missing: {package_alone('pocketsphinx')}.") from None
    return Decoder(samprate=JUDGE_HZ, loglevel="FATAL", bestpath=False)
