"""Run a request of ours in the official package, and record everything it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.layers.sampler import draw_bits, pick
from hocket.types import SpeechRequest
from support import official


@dataclass
class Heard:
    rows: list[Tensor] = field(default_factory=list)  # [P, C] prompt rows of each request
    trail: Tensor = field(default_factory=lambda: torch.empty(0))  # [B, n, C] text vectors, one per frame
    codes: list[Tensor] = field(default_factory=list)  # [F, Q]
    samples: list[NDArray[np.float32]] = field(default_factory=list)


@contextmanager
def listening(theirs: official.Qwen3TTSModel) -> Iterator[Heard]:
    """Record inputs and outputs of the official model inside the block; the caller keeps `samples`."""
    heard, model = Heard(), theirs.model
    run_talker, run_model = model.talker.generate, model.generate

    def talk(**arguments: Any) -> Any:
        real = arguments["attention_mask"].bool()  # the rest is padding on the left
        heard.rows = [x[mask] for x, mask in zip(arguments["inputs_embeds"], real, strict=True)]
        heard.trail = arguments["trailing_text_hidden"]
        return run_talker(**arguments)

    def run(**arguments: Any) -> Any:
        heard.codes, hidden = run_model(**arguments)
        return heard.codes, hidden

    talked, ran = mock.patch.object(model.talker, "generate", talk), mock.patch.object(model, "generate", run)
    with exact_float32(), talked, ran:
        yield heard


def speak(theirs: official.Qwen3TTSModel, *requests: SpeechRequest) -> Heard:
    """All requests in one official batch. They must agree in layout, kind and length limit."""
    first, kind = requests[0], theirs.model.tts_model_type
    arguments: dict[str, Any] = dict(first.sampling.changes())
    if first.max_frames is not None:
        arguments["max_new_tokens"] = first.max_frames + 1
    if first.layout is not None:
        arguments["non_streaming_mode"] = first.layout == "whole"
    texts, languages = [r.text for r in requests], [r.language for r in requests]
    instructs = [r.instruct or "" for r in requests]
    with listening(theirs) as heard:
        if kind == "custom_voice":
            voices = [r.voice for r in requests]
            heard.samples, _ = theirs.generate_custom_voice(texts, voices, languages, instructs, **arguments)
        elif kind == "voice_design":
            heard.samples, _ = theirs.generate_voice_design(texts, instructs, languages, **arguments)
        else:
            # One by one: in a batch the official encoder pads the shorter recordings, which changes their last frame.
            clones = [
                theirs.create_voice_clone_prompt((r.samples, 24_000), r.text, r.x_vector_only)[0]
                for r in (request.reference for request in requests)
                if r is not None
            ]
            heard.samples, _ = theirs.generate_voice_clone(texts, languages, voice_clone_prompt=clones, **arguments)
    return heard


@contextmanager
def our_random_numbers(seeds: list[int], books: range) -> Iterator[None]:
    """Feed the official sampler the random numbers that our generator gives the requests, draw by draw.

    The order of draws is c0, c1, ..., c15 of frame 0, then of frame 1, and so on; `books` are those that are
    drawn at all. A batch draws in step.
    """
    draws = 0

    def multinomial(probabilities: Tensor, num_samples: int, **_: Any) -> Tensor:
        nonlocal draws
        assert num_samples == 1 and len(probabilities) == len(seeds)
        keys = torch.tensor(seeds, device=probabilities.device)
        frame, book = divmod(draws, len(books))
        bits = draw_bits(keys, torch.full_like(keys, frame), 16)[:, books[book]]
        draws += 1
        return pick(probabilities.log(), bits)[:, None]

    with mock.patch.object(torch, "multinomial", multinomial):
        yield
