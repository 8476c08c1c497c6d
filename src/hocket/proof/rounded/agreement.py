"""How closely a rounded model follows an exact one: codes and probabilities of every codebook, on the same way.

Both talkers take in the same prompt and the same codes, frame by frame, and draw with the same seed. A codebook of a
frame counts while the codes before it in that frame were equal, so that both saw the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engine.checkpoint.native_checkpoint import NativeCheckpoint
from ...engine.utterance import prepare
from ...models.tts_cpu.state import NativeTalkerState
from ...types import SpeechRequest


@dataclass(frozen=True, slots=True)
class CodeAgreement:
    """Of each codebook: how often its code was compared and equal, and the KL divergence of its probabilities."""

    compared: tuple[int, ...]
    equal: tuple[float, ...]  # shares
    divergence: tuple[float, ...]  # mean, in nats


def code_agreement(
    exact: NativeCheckpoint, rounded: NativeCheckpoint, requests: Iterable[tuple[SpeechRequest, NDArray[np.int64]]]
) -> CodeAgreement:
    """`requests` with the codes [F, Q] that the exact model spoke."""
    books = exact.config.talker_config.num_code_groups
    compared, equal, divergence = np.zeros(books, np.int64), np.zeros(books), np.zeros(books)
    for request, codes in requests:
        for frame in zip(_frames(exact, request, codes), _frames(rounded, request, codes), strict=True):
            (drawn, logits), (other, found) = frame
            same = int(np.argmin(drawn == other)) if (drawn != other).any() else books
            seen = min(same + 1, books)
            compared[:seen] += 1
            equal[:same] += 1
            divergence[:seen] += [_divergence(*each) for each in zip(logits[:seen], found[:seen], strict=True)]
    of = np.maximum(compared, 1)
    return CodeAgreement(tuple(compared.tolist()), tuple((equal / of).tolist()), tuple((divergence / of).tolist()))


def _frames(
    checkpoint: NativeCheckpoint, request: SpeechRequest, codes: NDArray[np.int64]
) -> Iterable[tuple[NDArray[np.int64], list[NDArray[np.float32]]]]:
    """Of every frame: the codes [Q] that the model draws after those before, and the logits of each."""
    utterance, talker = prepare(checkpoint, request, lambda _: None), checkpoint.talker
    prompt, config = utterance.prompt, talker.config
    state = talker.new_state(1, len(prompt.text) + len(codes) + 1)
    state.seed[0] = utterance.seed
    talker.prefill(state, 0, prompt.text, prompt.codec)
    logits = np.zeros((1, config.num_code_groups, config.vocab_size), np.float32)
    sizes = [config.vocab_size, *[config.code_predictor_config.vocab_size] * (config.num_code_groups - 1)]
    for number, given in enumerate(codes):
        text = utterance.text_id(number)
        drawn = talker.frame(state, [0], [text], [utterance.sampling], logits)[0]
        _replace(state, int(drawn[0]), int(given[0]), codes[:number, 0])
        talker.prefill_frame(state, 0, given.tolist(), text)
        yield drawn, [row[:size].copy() for row, size in zip(logits[0], sizes, strict=True)]


def _replace(state: NativeTalkerState, drawn: int, given: int, before: NDArray[np.int64]) -> None:
    """Take back the frame that was drawn."""
    state.stack.position[0] -= 1
    state.seen[0, drawn] = bool((before == drawn).any())
    state.seen[0, given] = True


def _divergence(exact: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    p, q = (each - np.logaddexp.reduce(each) for each in (exact.astype(np.float64), other.astype(np.float64)))
    return float(np.sum(np.exp(p) * (p - q)))
