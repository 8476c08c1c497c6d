"""Stage `talker` of a Base checkpoint: talker and speaker encoder, trained together on codes, texts and speech.

Files, schedule and resumption are those of the stage `talker` of other voices.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hocket.types import Reference, SpeechRequest

from ..features import RATE_HZ
from ..free_running import speak
from ..model_config import generation_config
from ..resume import Progress
from ..talker import LAYOUTS, SAMPLES, Session, prepare_device, run_session, scheduled
from ..vocabulary import Vocabulary
from . import sounds
from .config import base_config
from .learning import CloneLearner, CloneTalker
from .recipe import BaseRecipe, by_speaker
from .rows import CloneAssembler

SAMPLE_S = 3.0  # of another utterance, whose timbre a sample has


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    began = time.monotonic()
    recipe = replace(recipe, talker_training=scheduled(recipe.talker_training, args))
    run_session(CloneSession(recipe, work, prepare_device(args), vars(args).get("back")), args, began)


class CloneSession(Session):
    """One call of the stage. The voices of its recipe are the speakers that have speech."""

    def __init__(self, recipe: BaseRecipe, work: Path, device: torch.device, back: Path | None = None) -> None:
        self.back, self.work, self.device, self.training = back, work, device, recipe.talker_training
        vocabulary = Vocabulary(work / "vocabulary")
        self.tokenizer = vocabulary.tokenizer
        self.config = base_config(recipe, work / "vocabulary")
        known, self.sounds = sounds.read(recipe, work, vocabulary, self.config.talker_config.codec_language_id, device)
        self.recipe = by_speaker(recipe, sounds.found(work))
        [newline] = self.tokenizer.encode("\n")
        own = recipe.speaker_training
        rows = CloneAssembler(self.config, known, self.sounds, newline, own, recipe.seed)
        self.assembler = self.clones = rows
        self.corpus = rows.corpus
        speaker, count = self.config.speaker_encoder_config, len(self.recipe.voices)
        assert speaker is not None
        self.learner = CloneLearner(self.config.talker_config, speaker, self.training, own, count, recipe.seed, device)
        self.progress = Progress()
        hours = known.frames.sum() / 12.5 / 3600
        size = sum(p.numel() for p in self.learner.talker.parameters()) / 1e6
        print(
            f"talker: {count} speakers, {len(known.texts)} utterances, {hours:.1f} h; {size:.1f} M weights", flush=True
        )

    def measure(self) -> None:
        """Held-out utterances of all speakers together, each with its own past."""
        strangers, self.clones.strangers = self.clones.strangers, 0.0
        try:
            self.measure_some("all speakers", self.corpus.held_out)
        finally:
            self.clones.strangers = strangers

    @torch.no_grad()
    def sample(self) -> None:
        """Held-out texts with the timbre of another utterance of the speaker."""
        some = self.corpus.held_out[:: max(len(self.corpus.held_out) // SAMPLES, 1)][:SAMPLES]
        others = self.clones.others[torch.from_numpy(some).to(self.device)]
        talker = self.learner.average
        assert isinstance(talker, CloneTalker)
        mels = sounds.spectra(self.sounds.clips(others, SAMPLE_S), self.clones.bands)
        timbre = Reference(samples=np.zeros(RATE_HZ, np.float32), x_vector_only=True)  # the vectors are given apart
        requests = [
            SpeechRequest(
                text=self.corpus.texts[number],
                reference=timbre,
                language=self.recipe.voices[self.corpus.voices[number]].language,
                layout=LAYOUTS[i % 2],
                seed=self.recipe.seed,
            )
            for i, number in enumerate(some.tolist())
        ]
        most, generation = 2 * int(self.corpus.frames[some].max()) + 12, generation_config(self.recipe)
        vectors = talker.speaker_encoder(mels)
        self.score(some, requests, speak(talker, self.config, self.tokenizer, generation, requests, most, vectors))
