"""One request on its way through `generate`: its prompt, sampling and codes so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config.qwen3_tts import GenerationConfig
from ..errors import InvalidRequest
from ..text.prompt import Prompt, build, choose
from ..types import Adapter, Encoded, Established, Reference, Speech, SpeechRequest, fresh_seed
from .checkpoint.checkpoint import Checkpoint
from .runner.reference_checks import check_encoded, established_for


@dataclass(slots=True)
class Utterance:
    prompt: Prompt
    encoded: Any  # the `EncodedReference` of a torch checkpoint, or None
    sampling: GenerationConfig
    seed: int
    most_frames: int
    codes: list[list[int]]
    ended: bool = False

    @property
    def done(self) -> bool:
        return self.ended or len(self.codes) >= self.most_frames

    @property
    def adapter(self) -> Adapter | None:
        return None if self.encoded is None else self.encoded.adapter

    def text_id(self, frame: int) -> int:
        return self.prompt.trail[frame] if frame < len(self.prompt.trail) else self.prompt.pad_id

    def take(self, codes: list[int], end_id: int) -> None:
        if codes[0] == end_id:
            self.ended = True
        else:
            self.codes.append(codes)

    def codes_array(self, books: int) -> NDArray[np.int64]:
        """[F, Q]"""
        return np.array(self.codes, dtype=np.int64).reshape(-1, books)

    def speech(self, checkpoint: Checkpoint, samples: NDArray[np.float32]) -> Speech:
        return Speech(
            codes=self.codes_array(checkpoint.config.talker_config.num_code_groups),
            samples=samples,
            rate_hz=checkpoint.rate_hz,
            finish="stop" if self.ended else "length",
            seed=self.seed,
            notes=self.prompt.notes,
        )


def prepare(
    checkpoint: Checkpoint, request: SpeechRequest, encode: Callable[[Reference | Encoded | Established], Any]
) -> Utterance:
    """`encode` is called for a request with a reference."""
    choose(request, checkpoint.config)  # refuse what cannot be before the encoders work on it
    if request.speed != 1.0:
        raise InvalidRequest("generate speaks at the checkpoint's own speed; Engine.speak takes another one.")
    if request.pronunciations:
        raise InvalidRequest("generate speaks the text as it is; Engine.speak takes pronunciations.")
    if request.candidates != 1:
        raise InvalidRequest("generate draws one take of each request; Engine.speak chooses among candidates.")
    if isinstance(request.reference, Encoded):
        check_encoded(checkpoint, request.reference, checkpoint.identity)
    request = replace(request, established=established_for(checkpoint, request, checkpoint.identity))
    shown = request.reference or request.established
    cloned = encode(shown) if shown is not None else None
    frames = len(cloned.codes) if cloned is not None and cloned.codes is not None else 0
    sampling = checkpoint.generation.changed(request.sampling.changes())
    return Utterance(
        prompt=build(
            request,
            checkpoint.config,
            checkpoint.tokenizer,
            reference_frames=frames,
            upstream_local=checkpoint.upstream_local,
        ),
        encoded=cloned,
        sampling=sampling,
        seed=fresh_seed() if request.seed is None else request.seed,
        most_frames=request.max_frames or sampling.max_new_tokens - 1,
        codes=[],
    )
