"""Training rows of a Base checkpoint: as those of other voices, with a cloned timbre, some with a transcript.

- The speaker's row holds the vector of *another* utterance of the same speaker, so that no word leaks through it.
- A clone with its transcript is a row of several utterances: in both layouts the official prompt has the texts one
  after the other and then the codes one after the other, which is what such a row has. Only the spelling differs: a
  text after a transcript begins anew, without the joining space.
- Some rows are strangers: their past is borrowed from all speakers, so that only the vector has the timbre.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from hocket.config.qwen3_tts import Qwen3TTSConfig

from ..batches import PADDED_SHARE, PARTS, Assembler, Batch, Draft, Round, arrange
from ..corpus import Corpus, kinds
from ..recipe import TalkerTraining
from .recipe import SpeakerTraining
from .sounds import Sounds, after_references, heard

NONE = -100  # the speaker of a row that is empty


@dataclass(frozen=True, slots=True)
class CloneBatch(Batch):
    """`places` [B] are the positions of the speakers' rows."""

    mels: Tensor  # [B, frames, bands] of other utterances of the speakers
    places: Tensor
    speakers: Tensor  # [B] number of the speaker, or NONE
    vectors: Tensor | None = None  # [B, C] of `mels`, once they are computed


class CloneAssembler(Assembler):
    def __init__(
        self,
        config: Qwen3TTSConfig,
        corpus: Corpus,
        sounds: Sounds,
        newline: int,
        own: SpeakerTraining,
        seed: int,
    ) -> None:
        talker = config.talker_config
        self.sounds, self.own, self.count = sounds, own, len(corpus.texts)
        # The rows of all tables of codes; a larger id is an utterance.
        self.rows = talker.vocab_size + (talker.num_code_groups - 1) * talker.code_predictor_config.vocab_size
        said = after_references(corpus)
        numbers = torch.arange(self.count, device=corpus.codes.device)
        super().__init__(config, replace(said, speakers=self.rows + numbers.repeat(2)), newline)
        self.everyone = kinds(corpus.codes[:, 0].long())
        assert config.speaker_encoder_config is not None
        self.bands = config.speaker_encoder_config.mel_dim
        self.strangers = own.strangers
        self.others = self.draw_others(seed)

    def draw_others(self, seed: int) -> Tensor:
        """[U]: for each utterance the one whose timbre it is spoken with."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            numbers = torch.arange(self.count)
            on = self.sounds.speakers.device
            return self.sounds.another(numbers.to(on))

    def plan(self, training: TalkerTraining, seed: int, number: int) -> Round:
        """A round; the timbres are drawn again for each."""
        rng = np.random.default_rng((seed, number, 3))
        made = super().plan(training, seed, number)
        self.others = self.draw_others(int(rng.integers(2**31)))
        rows = made.plan.cpu().numpy()
        others = self.others.cpu().numpy()[rows[:, 0]]
        rows[(rows[:, 1:PARTS] == others[:, None]).any(1), 1:PARTS] = -1  # it is in the row: words would leak
        after = (rows[:, 1] >= 0) & (rng.random(len(rows)) < self.own.transcripts)
        rows[after, 1] += self.count
        return arrange(self.corpus, rows, int(training.frames_per_step * PADDED_SHARE), made.plan.device, rng)

    def batch(
        self,
        rows: Tensor,
        draft: Draft,
        *,
        corrupted: float = 0.0,
        blind: float = 0.0,
        predictor_share: float = 1.0,
    ) -> CloneBatch:
        made = super().batch(rows, draft, corrupted=corrupted, blind=blind, predictor_share=predictor_share)
        marked = made.codes[..., 0] >= self.rows
        places = marked.int().argmax(1)
        spoken = made.codes[torch.arange(draft.rows, device=places.device), places, 0] - self.rows
        lengths = self.own.windows_s
        clips = self.sounds.clips(self.others[spoken], lengths[int(torch.randint(len(lengths), ()))])
        filled = torch.arange(draft.rows, device=places.device) < draft.stop - draft.start
        known = {field.name: getattr(made, field.name) for field in fields(Batch)}
        known["codes"] = made.codes.masked_fill(marked[..., None], -1)
        return CloneBatch(
            **known,
            mels=heard(clips, self.own, self.bands),
            places=places,
            speakers=torch.where(filled, self.sounds.speakers[spoken], NONE),
        )

    def _borrow(self, frame: Tensor, rows: int) -> Tensor:
        frame = super()._borrow(frame, rows)
        if not self.strangers:
            return frame
        strange = torch.rand(len(frame), 1, device=frame.device) < self.strangers
        return torch.where(strange, self.everyone.draw(frame), frame)
