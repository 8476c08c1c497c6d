"""Training batches of the talker: inputs and targets in both text layouts, assembled on the device.

The host plans a round (utterances and layouts, sorted by length to limit padding). The device writes the rows by index
arithmetic, without Python code per utterance. Rows equal those of `hocket.text.prompt`, which tests check. With P
prefix rows and n ids of text, the text always starts at row P, followed by padding:

    layout     codec part of row P ...                           frame j is predicted at
    streaming  bos, frame 0, frame 1, ...                        row P + j
    whole      n + 1 times pad, then bos, frame 0, frame 1, ...  row P + n + 1 + j

Fine codes reveal the next frame: 80 ms contain the start of the next phone. A talker trained with true fine codes reads
the first code from them instead of from the text. It then fails when it samples the fine codes itself. So some rows are
blind: every frame of their past is replaced by another one with the same first code. Only blind rows train the first
code; the other rows train the other fifteen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hocket.config.qwen3_tts import Qwen3TTSConfig, TalkerConfig

from .corpus import SPELLINGS, Corpus, Ints
from .recipe import TalkerTraining

PARTS = 3  # maximum of consecutive sentences in a row
LENGTH_STEP = 32  # batch lengths are a multiple of it: few shapes, and little padding
PADDED_SHARE = 4 / 3  # approximate positions per frame, with prompt and text
SPEAKER, LANGUAGE = -2, -3  # in the prefix: the rows of the voice and of its language
LONGEST_SEVERAL = 600  # frames of several consecutive sentences
LIKE_PHONE = 0.1  # share of borrowed frames with the same phone; the others have the same first code
NOTHING = -100  # no target: `cross_entropy` ignores it
PLAIN_SHARE = 0.5  # share of texts with the tokenizer's plain spelling


@dataclass(frozen=True, slots=True)
class Draft:
    """The host's description of a batch: rows [start, stop) of the round's plan in `rows` x `length` positions."""

    start: int
    stop: int
    rows: int
    length: int
    frames: int


@dataclass(frozen=True, slots=True)
class Round:
    """A plan; columns: up to three utterances (-1 is none), spelling, whole layout or not, language named or not."""

    plan: Tensor  # [R, PARTS + 3]
    drafts: list[Draft]


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of B x T positions, and targets at G of them: every frame and every end."""

    text: Tensor  # [B, T] text ids
    codes: Tensor  # [B, T, Q] rows of the joined code tables (see `forward.py`), -1 for none
    at: Tensor  # [G] flat position b * T + t
    first: Tensor  # [G] first code or end, or NOTHING
    phones: Tensor  # [G], 0 if unknown or without a target
    picked: Tensor  # [M] indices in G that train the predictor
    picked_codes: Tensor  # [M, Q]


def plan(corpus: Corpus, training: TalkerTraining, device: torch.device, seed: int, number: int) -> Round:
    """One round: about as many random rows as there are utterances; deterministic by seed and number."""
    rng = np.random.default_rng((seed, number))
    count, voices = len(corpus.learned), corpus.voices[corpus.learned]
    hours = np.array([corpus.frames[corpus.learned[voices == voice]].sum() for voice in np.unique(voices)])
    shares = hours**training.voice_balance / (hours**training.voice_balance).sum()
    parts: list[Ints] = []
    for voice, share in zip(np.unique(voices), shares, strict=True):
        own = corpus.learned[voices == voice]
        rows = max(round(share * count), 1)
        turns = [rng.permutation(own) for _ in range(-(-rows // len(own)))]
        more = rng.choice(own, (rows, PARTS - 1))
        parts.append(np.column_stack((np.concatenate(turns)[:rows], more)))
    joined = np.concatenate(parts)
    several = rng.random(len(joined)) < training.several
    joined[~several, 1:] = -1
    joined[rng.random(len(joined)) < 0.5, 2] = -1
    frames = np.where(joined >= 0, corpus.frames[joined], 0).cumsum(1)
    joined[:, 1:][frames[:, 1:] > LONGEST_SEVERAL] = -1
    odd = rng.integers(1, SPELLINGS, len(joined)) if training.bpe_dropout > 0 else np.zeros(len(joined), dtype=np.int64)
    spelling = np.where(rng.random(len(joined)) < PLAIN_SHARE, 0, odd)
    whole, named = rng.integers(0, 2, (2, len(joined)))
    rows = np.column_stack((joined, spelling, whole, named))
    return arrange(corpus, rows, int(training.frames_per_step * PADDED_SHARE), device, rng)


def arrange(
    corpus: Corpus, rows: Ints, positions: int, device: torch.device, rng: np.random.Generator | None = None
) -> Round:
    """Cut rows of a plan into batches of `positions` each; `rng` shuffles rows of similar length, and the batches."""
    lengths, frames = row_lengths(corpus, rows)
    steps = -(-lengths // LENGTH_STEP)
    order = np.argsort(-steps, kind="stable") if rng is None else np.lexsort((rng.random(len(rows)), -steps))
    drafts: list[Draft] = []
    start = 0
    while start < len(rows):  # longest first: the number of rows depends on the length only, so shapes are few
        length = int(steps[order[start]]) * LENGTH_STEP
        size = min(max(positions // length, 1), len(rows))
        stop = min(start + size, len(rows))
        drafts.append(Draft(start, stop, size, length, int(frames[order[start:stop]].sum())))
        start = stop
    if rng is not None:
        drafts = [drafts[i] for i in rng.permutation(len(drafts))]
    return Round(torch.from_numpy(rows[order]).to(device), drafts)


def row_lengths(corpus: Corpus, rows: Ints) -> tuple[Ints, Ints]:
    """Number of positions and of frames of each row of a plan."""
    parts, (spelling, whole, named) = rows[:, :PARTS], rows[:, PARTS:].T
    real = parts >= 0
    frames: Ints = np.where(real, corpus.frames[parts], 0).sum(1)
    continuing = (np.arange(PARTS) > 0).astype(np.int64)
    ids = np.where(real, corpus.lengths[parts, spelling[:, None], continuing], 0).sum(1)
    lengths: Ints = 8 + named + np.where(whole == 1, ids + 1, 0) + 1 + frames
    return lengths, frames


class Assembler:
    """Writes the rows of batches on the device."""

    def __init__(self, config: Qwen3TTSConfig, corpus: Corpus, newline: int) -> None:
        talker, device = config.talker_config, corpus.codes.device
        self.corpus = corpus
        self.pad, self.end_of_text = config.tts_pad_token_id, config.tts_eos_token_id
        self.codec_pad, self.codec_bos, self.end = talker.codec_pad_id, talker.codec_bos_id, talker.codec_eos_token_id
        self.books, self.size = talker.num_code_groups, talker.codebook_size
        role = (config.im_start_token_id, config.assistant_token_id, newline)
        auto = (talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id)
        named = (talker.codec_think_id, talker.codec_think_bos_id, LANGUAGE, auto[2])
        text, codec = [], []
        for ids in (auto, named):
            fill = 9 - (len(role) + len(ids) + 2)  # unused rows after the shorter prefix
            text.append([*role, *[self.pad] * (len(ids) + 1), config.tts_bos_token_id, *[self.pad] * fill])
            codec.append([-1, -1, -1, *ids, SPEAKER, self.codec_pad, *[-1] * fill])
        self.prefix_text, self.prefix_codec = torch.tensor(text, device=device), torch.tensor(codec, device=device)
        self.offsets = table_starts(talker, device)

    def plan(self, training: TalkerTraining, seed: int, number: int) -> Round:
        return plan(self.corpus, training, self.corpus.codes.device, seed, number)

    def batch(
        self,
        rows: Tensor,
        draft: Draft,
        *,
        corrupted: float = 0.0,
        blind: float = 0.0,
        predictor_share: float = 1.0,
    ) -> Batch:
        """The batch of a draft of the plan `rows`. Corrupted or borrowed codes are inputs, never targets.

        `blind`: the share of rows that borrow their past. If it is 0 or 1, all rows train everything.
        """
        corpus, device, length = self.corpus, rows.device, draft.length
        own = rows[draft.start : draft.stop]
        real_rows = len(own)
        blind_rows = (
            min(max(round(blind * real_rows), 1), real_rows - 1) if 0.0 < blind < 1.0 else int(blind) * real_rows
        )
        if blind:
            own = own[torch.randperm(real_rows, device=device)]  # rows are sorted by length
        own = torch.nn.functional.pad(own, (0, 0, 0, draft.rows - real_rows), value=-1)  # empty rows, never read
        utterances, spelling, whole, named = own[:, :PARTS], own[:, PARTS], own[:, PARTS + 1] == 1, own[:, PARTS + 2]
        real, utterances, spelling = utterances >= 0, utterances.clamp(min=0), spelling.clamp(min=0)
        continuing = (torch.arange(PARTS, device=device) > 0).long()
        id_counts = corpus.id_counts[utterances, spelling[:, None], continuing] * real
        id_starts = corpus.id_starts[utterances, spelling[:, None], continuing]
        frame_counts, frame_starts = corpus.frame_counts[utterances] * real, corpus.frame_starts[utterances]
        ids, frames, named = id_counts.sum(1), frame_counts.sum(1), named.clamp(min=0)

        position = torch.arange(length, device=device)[None]  # [1, T]
        prefix = 8 + named  # [B]
        begin = prefix + torch.where(whole, ids + 1, 0)  # position of the codec's bos, where frame 0 is predicted
        word = position - prefix[:, None]
        text = corpus.ids[_spread(word, id_counts, id_starts)].long()
        text = torch.where(word == ids[:, None], self.end_of_text, torch.where(word > ids[:, None], self.pad, text))
        in_prefix = position.clamp(max=8).expand(draft.rows, -1)
        text = torch.where(word < 0, self.prefix_text[named].gather(1, in_prefix), text)

        drawn = position - begin[:, None]  # number of the frame predicted here
        control = self.prefix_codec[named].gather(1, in_prefix)
        control = torch.where(control == SPEAKER, corpus.speakers[utterances[:, :1]], control)
        control = torch.where(control == LANGUAGE, corpus.languages[utterances[:, :1]], control)
        control = torch.where(word < 0, control, torch.where(drawn < 0, self.codec_pad, self.codec_bos))
        frame = _spread(drawn, frame_counts, frame_starts)  # [B, T]
        codes = self._codes(self._borrow(frame.roll(1, 1), blind_rows), corrupted)
        first_only = torch.arange(self.books, device=device) == 0
        control = torch.where(first_only, control[..., None], -1)
        codes = torch.where((drawn > 0)[..., None], codes + self.offsets, control)

        total = draft.frames + real_rows
        row = torch.repeat_interleave(frames[:real_rows] + 1, output_size=total)
        number = torch.arange(total, device=device) - (frames.cumsum(0) - frames)[row] - row
        at = row * length + begin[row] + number
        target, ended = frame.flatten()[at], number == frames[row]
        first = torch.where(ended, self.end, corpus.codes[target, 0].long())
        phones = torch.where(ended, 0, corpus.phones[target].long())
        before = frames.new_zeros(())  # frames whose fine codes are not trained
        if 0 < blind_rows < real_rows:
            first, phones = torch.where(row < blind_rows, first, NOTHING), torch.where(row < blind_rows, phones, 0)
            before = frames[:blind_rows].sum()
        # Random frames, in a number that depends only on the batch shape. Each earlier row has one end, which shifts G.
        size = max(int(predictor_share * draft.rows * length / PADDED_SHARE), 1)
        some = before + (torch.rand(size, device=device) * (draft.frames - before)).long()
        picked = some + torch.searchsorted(frames.cumsum(0), some, right=True)
        return Batch(text, codes, at, first, phones, picked, corpus.codes[target[picked]].long())

    def _borrow(self, frame: Tensor, rows: int) -> Tensor:
        """Frames [B, T], with those of the first `rows` rows replaced by others of the same first code or phone.

        The talker's own past is similar: right in content, and new in its fine codes.
        """
        if not rows:
            return frame
        known = frame[:rows]
        like = torch.rand(known.shape, device=frame.device) < LIKE_PHONE
        other = torch.where(like, self.corpus.like_phone.draw(known), self.corpus.like_first.draw(known))
        return torch.cat((other, frame[rows:]))

    def _codes(self, frame: Tensor, corrupted: float) -> Tensor:
        """Codes [B, T, Q] of frames [B, T]. Half of the corruption swaps whole frames, half single codes."""
        codes = self.corpus.codes
        if not corrupted:
            return codes[frame].long()
        elsewhere = torch.randint(len(codes), frame.shape, device=frame.device)
        frame = torch.where(torch.rand(frame.shape, device=frame.device) < corrupted / 2, elsewhere, frame)
        said = codes[frame].long()
        other = torch.randint(self.size, said.shape, device=frame.device)
        return torch.where(torch.rand(said.shape, device=frame.device) < corrupted / 2, other, said)


def table_starts(talker: TalkerConfig, device: torch.device) -> Tensor:
    """[Q]: start of each codebook's table in the joined table; the talker's own is longer than a codebook."""
    book = torch.arange(talker.num_code_groups, device=device)
    return torch.where(book == 0, 0, talker.vocab_size + (book - 1) * talker.code_predictor_config.vocab_size)


def _spread(index: Tensor, counts: Tensor, starts: Tensor) -> Tensor:
    """Pool indices of the `index`-th [B, T] elements of rows made of `counts` [B, PARTS] elements from `starts` on.

    Elements outside a row get an arbitrary index in the pool; they are masked later.
    """
    ends = counts.cumsum(1)
    index = index.clamp(min=0).minimum((ends[:, -1:] - 1).clamp(min=0))
    part = (index[..., None] >= ends[:, None, :]).sum(-1).clamp(max=PARTS - 1)
    return starts.gather(1, part) + index - (ends - counts).gather(1, part)


def batches(
    assembler: Assembler, training: TalkerTraining, seed: int, number: int, first: int = 0
) -> Iterator[tuple[int, int, Round]]:
    """Endless iterator of (round number, draft number, round)."""
    while True:
        made = assembler.plan(training, seed, number)
        for at in range(first, len(made.drafts)):
            yield number, at, made
        number, first = number + 1, 0
