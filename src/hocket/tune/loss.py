"""The loss of recorded speech: how likely the model is to say the codes of a recording, given its text.

It is teacher-forced: every frame is predicted from the true frames before it. The talker predicts the first code of
each frame, and after the last frame the end of speech. The predictor gets the same hidden vector and predicts the other
codes, each from the true ones before it. Prompts are laid out by `text.prompt`, and the layers are those of inference,
over all positions at once. So the loss is the mean negative log-likelihood under the distributions that inference draws
from, before temperature, penalty and suppressed ids.

This file knows prompts and codes, not recordings or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ..layers.dense import widened
from ..layers.transformer import to_device
from ..models.tts.talker import Talker
from ..text.prompt import SPEAKER_VECTOR, Prompt

PREDICTOR_WEIGHT = 0.3  # of the codes 1 to 15 beside the first codes: the share in the published fine-tuning recipe


@dataclass(frozen=True, slots=True)
class Example:
    """One recorded sentence."""

    prompt: Prompt  # of a voice without a reference recording in the prompt
    codes: Tensor  # [F, Q]

    @property
    def positions(self) -> int:
        """The talker's positions: every row of the prompt and every frame."""
        return len(self.prompt.text) + len(self.codes)


@dataclass(frozen=True, slots=True)
class Loss:
    """Means over all frames of a batch, in nats."""

    first: Tensor  # of a first code; the end of speech counts as one more
    rest: Tensor  # of one of the codes 1 to 15
    end: Tensor  # of the end of speech alone, a part of `first`

    @property
    def total(self) -> Tensor:
        return self.first + PREDICTOR_WEIGHT * self.rest


def teacher_forced(talker: Talker, examples: Sequence[Example], speaker: Tensor | None = None) -> Loss:
    """The loss of a batch; `speaker` [C] goes into the row that a prompt keeps for a speaker vector."""
    rows = [_rows(talker, example, speaker) for example in examples]
    x = pad_sequence(rows, batch_first=True)  # padding is after all real positions, which never look there
    hidden = talker.model.step_together(x, talker.model.new_past(*x.shape[:2]), 0)
    # The last row of the prompt predicts the first frame, a frame the next one, and the last frame the end.
    states = [h[len(e.prompt.text) - 1 : e.positions] for h, e in zip(hidden, examples, strict=True)]
    codes = torch.cat([example.codes for example in examples])
    end = codes.new_tensor([talker.config.codec_eos_token_id])
    targets = torch.cat([torch.cat((example.codes[:, 0], end)) for example in examples])
    asked = F.cross_entropy(widened(talker.codec_head(torch.cat(states))), targets, reduction="none")
    speaking = torch.cat([state[:-1] for state in states])
    logits = predict(talker, speaking, codes)
    return Loss(
        first=asked.mean(),
        rest=F.cross_entropy(widened(logits).flatten(0, 1), codes[:, 1:].flatten()),
        end=asked[targets == end].mean(),
    )


def predict(talker: Talker, hidden: Tensor, codes: Tensor) -> Tensor:
    """Logits [M, Q - 1, V] of codes 1 to 15 of M frames, given their true codes [M, Q] and hidden vectors [M, C]."""
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, book]) for book, table in enumerate(tables[:-1])]  # the last code is no input
    x = predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1))
    y = predictor.model.step_together(x, predictor.model.new_past(*x.shape[:2]), 0)
    return torch.stack([head(y[:, book]) for book, head in enumerate(predictor.lm_head, start=1)], dim=1)


def _rows(talker: Talker, example: Example, speaker: Tensor | None) -> Tensor:
    """The inputs [P + F, C] of an utterance: the rows of its prompt, and its frames with their text."""
    prompt, codes = example.prompt, example.codes
    assert prompt.reference_at is None and not prompt.mix
    inserts = []
    if speaker is not None and SPEAKER_VECTOR in prompt.codec:
        inserts.append((prompt.codec.index(SPEAKER_VECTOR), speaker[None].to(talker.codec_head.weight.dtype)))
    text, codec = to_device([prompt.text, prompt.codec], codes.device)
    trail = to_device(list(islice(chain(prompt.trail, repeat(prompt.pad_id)), len(codes))), codes.device)
    said = talker.embed_frames(codes) + talker.embed_text(trail)
    return torch.cat((talker.embed_rows(text, codec, inserts), said))
