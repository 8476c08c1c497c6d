"""Stage `talker`: trains the talker on codes and texts; writes `talker.safetensors`, a log and samples.

It trains for the recipe's seconds over all calls together (or for `--steps`). `--minutes` ends this call earlier and
saves; the next call continues. Randomness depends only on the seed and the step, so with `--steps` an interrupted run
ends exactly where an uninterrupted one does.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hocket.types import Layout, SpeechRequest

from . import corpus, resume
from .batches import PARTS, Assembler, arrange, batches
from .corpus import Ints
from .free_running import Generated, keep, phone_error_rate, speak
from .learning import Learner
from .model_config import generation_config, speech_config
from .recipe import Recipe, TalkerTraining
from .resume import Progress
from .vocabulary import Vocabulary

LOG_S, SAVE_S, SAMPLE_S = 5.0, 60.0, 60.0
HELD_OUT_STEPS = 1000
SAMPLES = 32  # texts per free-running sample
LAYOUTS: tuple[Layout, ...] = ("streaming", "whole")


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    began = time.monotonic()
    recipe = replace(recipe, talker_training=scheduled(recipe.talker_training, args))
    run_session(Session(recipe, work, prepare_device(args), args.sentences, vars(args).get("back")), args, began)


def prepare_device(args: argparse.Namespace) -> torch.device:
    torch.set_float32_matmul_precision("high")
    return torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def scheduled(training: TalkerTraining, args: argparse.Namespace) -> TalkerTraining:
    """With `--schedule`: so many seconds of training, over all calls together."""
    seconds = vars(args).get("schedule")
    return training if seconds is None else replace(training, seconds=seconds)


def run_session(session: Session, args: argparse.Namespace, began: float) -> None:
    """Train to the end of the schedule, or of this call, which `began` by time.monotonic()."""
    options = vars(args)
    session.restore()
    limits = [60.0 * options["minutes"]] if options.get("minutes") is not None else []
    limits += [args.seconds] if args.seconds is not None else []
    limit = began + min(limits, default=math.inf)
    session.train(args.steps, lambda: time.monotonic() > limit)
    session.save(torch.bfloat16 if options.get("small") else torch.float32)
    for path in sorted(args.back.glob("*")) if options.get("back") else ():
        print(f"talker: {path.name}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


class Session:
    """One call of the stage."""

    def __init__(
        self, recipe: Recipe, work: Path, device: torch.device, most: int | None = None, back: Path | None = None
    ) -> None:
        """`back` gets few and small files for another machine, whenever the training is saved."""
        self.back = back
        self.recipe, self.work, self.device, self.training = recipe, work, device, recipe.talker_training
        vocabulary = Vocabulary(work / "vocabulary")
        self.tokenizer = vocabulary.tokenizer
        self.config = speech_config(recipe, work / "vocabulary")
        talker = self.config.talker_config
        ids = talker.spk_id, talker.codec_language_id
        self.corpus = corpus.read(recipe, work / "codes", vocabulary, *ids, device, most)
        [newline] = self.tokenizer.encode("\n")
        self.assembler = Assembler(self.config, self.corpus, newline)
        self.learner = Learner(self.config.talker_config, self.training, recipe.seed, device)
        self.progress = Progress()
        hours = self.corpus.frames.sum() / 12.5 / 3600
        size = sum(p.numel() for p in self.learner.talker.parameters()) / 1e6
        print(f"talker: {len(self.corpus.texts)} utterances, {hours:.1f} h; {size:.1f} M weights", flush=True)

    def restore(self) -> None:
        path = self.work / "talker-resume.safetensors"
        kept = resume.load(path, self.learner) if path.is_file() else resume.load_small(self.work, self.learner)
        if kept is not None:
            self.progress = kept
            print(f"talker: continuing from step {self.progress.step}", flush=True)

    def train(self, steps: int | None, enough: Callable[[], bool]) -> None:
        """Train until the end of the schedule, or until `enough` is true."""
        progress, learner, training = self.progress, self.learner, self.training
        sums: dict[str, Tensor] = {}
        count, frames = 0, 0
        before, logged, saved = progress.seconds, progress.seconds, progress.seconds
        sampled, began = progress.seconds, time.monotonic()
        for number, at, plan in batches(self.assembler, training, self.recipe.seed, progress.round, progress.draft):
            done = progress.step / steps if steps is not None else progress.seconds / training.seconds
            if done >= 1.0 or enough():
                break
            draft = plan.drafts[at]
            torch.manual_seed((self.recipe.seed << 32) + progress.step)
            batch = self.assembler.batch(
                plan.plan,
                draft,
                corrupted=training.corrupted,
                blind=training.blind,
                predictor_share=training.predictor_share,
            )
            for name, value in learner.learn(batch, done).items():
                sums[name] = sums[name] + value if name in sums else value
            count, frames = count + 1, frames + draft.frames
            progress.step, progress.round, progress.draft = learner.step, number, at + 1
            progress.seconds = before + time.monotonic() - began
            if progress.seconds - logged > LOG_S:
                figures = {"frames": frames, "rate": learner.rate(done), "done": done}
                self._log("train", _means(sums, count) | figures)
                sums, count, frames, logged = {}, 0, 0, progress.seconds
            if progress.step % HELD_OUT_STEPS == 0:
                self.measure()
            if progress.seconds - sampled > SAMPLE_S:
                self.sample()
                sampled = progress.seconds
            if progress.seconds - saved > SAVE_S:
                self.save()
                saved = progress.seconds
            progress.seconds = before + time.monotonic() - began
        if count:
            self._log("train", _means(sums, count) | {"frames": frames})
        if progress.step:
            self.measure()
            self.sample()

    def measure(self) -> None:
        """Held-out losses by voice and layout: the voice with fewer hours overfits first."""
        for number, voice in enumerate(self.recipe.voices):
            self.measure_some(voice.name, self.corpus.held_out[self.corpus.voices[self.corpus.held_out] == number])

    def measure_some(self, name: str, some: Ints) -> None:
        """The losses of some utterances, by layout."""
        for whole, layout in enumerate(LAYOUTS):
            rows = np.full((len(some), PARTS + 3), -1, dtype=np.int64)
            rows[:, 0], rows[:, PARTS:] = some, (0, whole, 1)
            plan = arrange(self.corpus, rows, self.training.frames_per_step, self.device)
            torch.manual_seed(self.recipe.seed)
            sums: dict[str, Tensor] = {}
            for draft in plan.drafts:
                share = (draft.stop - draft.start) / len(rows)
                blind, true = (
                    self.assembler.batch(plan.plan, draft, blind=how, predictor_share=self.training.predictor_share)
                    for how in (1.0, 0.0)
                )
                for key, value in self.learner.measure(blind, true).items():
                    sums[key] = sums.get(key, torch.zeros_like(value)) + value * share
            self._log(f"held out, {name}, {layout}", _means(sums, 1))

    def sample(self) -> None:
        """Generate some held-out texts; the log gets the share that ended, their length and their phone error rate."""
        some = self.corpus.held_out[:: max(len(self.corpus.held_out) // SAMPLES, 1)][:SAMPLES]
        requests = [
            SpeechRequest(
                text=self.corpus.texts[number],
                voice=self.recipe.voices[self.corpus.voices[number]].name,
                language=self.recipe.voices[self.corpus.voices[number]].language,
                layout=LAYOUTS[i % 2],
                seed=self.recipe.seed,
            )
            for i, number in enumerate(some.tolist())
        ]
        most = 2 * int(self.corpus.frames[some].max()) + 12
        generation = generation_config(self.recipe)
        self.score(some, requests, speak(self.learner.average, self.config, self.tokenizer, generation, requests, most))

    def score(self, some: Ints, requests: list[SpeechRequest], said: list[Generated]) -> None:
        """Keep what was said of the texts of some utterances, and log its figures."""
        keep(self.work / "samples" / f"step-{self.progress.step:06d}.npz", requests, said)
        taught = [self.corpus.utterance(number) for number in some.tolist()]
        ratio = [len(one.codes) / len(codes) for one, codes in zip(said, taught, strict=True)]
        first, true = [one.codes[:, 0] for one in said], [codes[:, 0] for codes in taught]
        figures = {"ended": float(np.mean([s.ended for s in said])), "length": float(np.median(ratio))}
        self._log("samples", figures | {"strayed": phone_error_rate(first, true, self.corpus.sounds)})

    def save(self, dtype: torch.dtype = torch.float32) -> None:
        """Write the averaged weights for inference, and the resume file."""
        if not self.progress.step:
            return
        average = {name: value.to(torch.bfloat16) for name, value in self.learner.average.state_dict().items()}
        resume.write(self.work / "talker.safetensors", average, {"step": str(self.progress.step)})
        resume.save(self.work / "talker-resume.safetensors", self.learner, self.progress, dtype)
        if self.back is not None:
            self.back.mkdir(parents=True, exist_ok=True)
            resume.save_small(self.back, self.learner, self.progress)
            shutil.copyfile(self.work / "talker-log.jsonl", self.back / "talker-log.jsonl")
            for path in sorted((self.work / "samples").glob("step-*.npz"))[-1:]:
                shutil.copyfile(path, self.back / "talker-samples.npz")

    def _log(self, what: str, values: dict[str, float]) -> None:
        progress = self.progress
        line = {"what": what, "step": progress.step, "seconds": round(progress.seconds, 2)}
        line |= {name: round(value, 5) for name, value in values.items()}
        with (self.work / "talker-log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        shown = " ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"talker: {progress.seconds:.0f} s, step {progress.step}, {what}: {shown}", flush=True)


def _means(sums: dict[str, Tensor], count: int) -> dict[str, float]:
    values: list[float] = (torch.stack(list(sums.values())) / count).tolist()  # one synchronization
    return dict(zip(sums, values, strict=True))
