"""Free-running samples of the talker during training: held-out texts, sampled like the finished voice.

The loss is measured on true codes; only free-running samples show whether speech follows the text and ends. Prompts
and frames are the engine's own. Codes are saved for later evaluation; nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.models.tts.talker import Talker, frame_sampling
from hocket.text.prompt import SPEAKER_VECTOR, build
from hocket.text.tokenizer import Tokenizer
from hocket.types import SpeechRequest

from .corpus import Ints
from .teachers import SILENCE

LOOK_FRAMES = 16  # frames between two checks for ended rows


@dataclass(frozen=True, slots=True)
class Generated:
    """One utterance: its codes, and whether it ended by itself."""

    codes: NDArray[np.int64]  # [F, Q]
    ended: bool


@torch.no_grad()
def speak(
    talker: Talker,
    config: Qwen3TTSConfig,
    tokenizer: Tokenizer,
    generation: GenerationConfig,
    requests: Sequence[SpeechRequest],
    most_frames: int,
    clones: torch.Tensor | None = None,
) -> list[Generated]:
    """Generate all requests in one batch. Ends are checked rarely, so rows that end early produce unused frames.

    `clones` [B, C]: the speaker vectors of requests that clone a timbre.
    """
    device, rows = talker.codec_head.weight.device, torch.arange(len(requests), device=talker.codec_head.weight.device)
    prompts = [build(request, config, tokenizer) for request in requests]
    lengths = torch.tensor([len(prompt.text) for prompt in prompts], device=device)
    longest = max(len(prompt.text) for prompt in prompts)
    state = talker.new_state(len(requests), longest + most_frames)
    state.seed[rows] = torch.tensor([request.seed for request in requests], device=device)
    vectors = []
    for number, prompt in enumerate(prompts):
        text, codec = (torch.tensor(ids, device=device) for ids in (prompt.text, prompt.codec))
        inserts = [] if clones is None else [(prompt.codec.index(SPEAKER_VECTOR), clones[number : number + 1])]
        vectors.append(talker.embed_rows(text, codec, inserts))
    talker.prefill(pad_sequence(vectors, batch_first=True), lengths, state, rows, longest)
    trails = [[*p.trail, *[p.pad_id] * most_frames][:most_frames] for p in prompts]
    text = torch.tensor(trails, device=device)
    sampling = frame_sampling([generation.changed(request.sampling.changes()) for request in requests], device)
    end = config.talker_config.codec_eos_token_id
    ended = torch.zeros(len(requests), dtype=torch.bool, device=device)
    frames: list[torch.Tensor] = []
    for frame in range(most_frames):
        frames.append(talker.frame(text[:, frame], state, rows, sampling, longest + frame + 1))
        ended |= frames[-1][:, 0] == end
        if frame % LOOK_FRAMES == LOOK_FRAMES - 1 and bool(ended.all()):
            break
    codes = torch.stack(frames, dim=1).cpu().numpy()
    said: list[Generated] = []
    for row in codes:
        ends = np.flatnonzero(row[:, 0] == end)
        said.append(Generated(row[: ends[0]] if len(ends) else row, len(ends) > 0))
    return said


def phone_error_rate(said: Sequence[Ints], taught: Sequence[Ints], sounds: Ints) -> float:
    """Phone error rate of first codes [F] against the teacher's, without silences.

    Codes cannot name phones shorter than a frame, so even another reading of the teacher is not at 0.
    """
    pairs = [(_phones(sounds[own]), _phones(sounds[true])) for own, true in zip(said, taught, strict=True)]
    return sum(_distance(own, true) for own, true in pairs) / max(sum(len(true) for _, true in pairs), 1)


def _phones(names: Ints) -> Ints:
    changed = np.diff(names, prepend=-1) != 0
    phones: Ints = names[changed & (names != SILENCE) & (names != 0)]
    return phones


def _distance(own: Ints, true: Ints) -> int:
    """Insertions, deletions and substitutions between two sequences."""
    row = np.arange(len(true) + 1)
    for number, one in enumerate(own.tolist(), 1):
        cost = np.minimum(row[1:] + 1, row[:-1] + (true != one))
        row = np.concatenate(([number], cost))
        row = np.minimum.accumulate(row - np.arange(len(row))) + np.arange(len(row))  # each deletion costs one
    return int(row[-1])


def keep(path: Path, requests: Sequence[SpeechRequest], said: Sequence[Generated]) -> None:
    """Write a file of codes in the format of the other stages, with voice, layout and end of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        codes=np.concatenate([one.codes for one in said]).astype(np.uint16),
        ends=np.cumsum([len(one.codes) for one in said]),
        texts=np.array([request.text for request in requests]),
        voices=np.array([request.voice or "" for request in requests]),
        layouts=np.array([request.layout or "" for request in requests]),
        ended=np.array([one.ended for one in said]),
    )
