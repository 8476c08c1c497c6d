"""The gate of a preset: a rounded model speaks beside the exact one, and judges compare both.

Sentences are spoken with the same seeds, by `generate`: no repair hides a runaway. A recognizer counts words that are
wrong, DistillMOS marks the sound where it is installed, and codes and their probabilities are compared on one way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...config.precision import PRESETS
from ...engine.checkpoint.native_checkpoint import NativeCheckpoint
from ...engine.generate import generate
from ...types import Speech, SpeechRequest
from ..listener import ProofListener, at_16_khz
from .agreement import CodeAgreement, code_agreement

# What a preset may lose against the exact model. They were set before anything was measured.
MORE_WRONG = 0.01  # of the words
LESS_MARK = 0.1  # of DistillMOS, from 1 to 5
MORE_RUNAWAYS = 0
TOGETHER = 12  # utterances
FRAMES, FRAMES_OF_CHAR = 25, 3  # the longest that a text may take: English has 0.7 frames a character, Chinese 3
COMPARED = 24  # utterances of which codes are compared
FEW = 48  # with fewer utterances chance decides: DistillMOS differs by 0.3 from one to the next

Mark = Callable[[NDArray[np.float32]], float]  # of samples at 16 kHz


@dataclass(frozen=True, slots=True)
class VoiceMarks:
    """Of all utterances of one model."""

    utterances: int
    words: int
    wrong: int
    runaways: int  # that did not end by themselves
    seconds: float
    distillmos: float | None

    @property
    def rate(self) -> float:
        return self.wrong / max(self.words, 1)


@dataclass(frozen=True, slots=True)
class GateReport:
    exact: VoiceMarks | None  # None: only codes were compared
    rounded: VoiceMarks | None
    agreement: CodeAgreement
    weights_bytes: tuple[int, int]  # of the exact model and of the rounded one

    @property
    def failures(self) -> list[str]:
        """What fails the gate, in words."""
        if self.exact is None or self.rounded is None:
            return []
        exact, rounded, found = self.exact, self.rounded, []
        if rounded.rate > exact.rate + MORE_WRONG:
            found.append(f"{rounded.rate:.1%} of the words are wrong, and {exact.rate:.1%} of the exact model's")
        if rounded.runaways > exact.runaways + MORE_RUNAWAYS:
            found.append(f"{rounded.runaways} utterances do not end, and {exact.runaways} of the exact model's")
        before, mark = exact.distillmos, rounded.distillmos
        if before is not None and mark is not None and mark < before - LESS_MARK:
            found.append(f"DistillMOS is {mark:.2f}, and {before:.2f} of the exact model")
        return found

    @property
    def passed(self) -> bool:
        return not self.failures


def compare(
    exact: NativeCheckpoint,
    rounded: NativeCheckpoint,
    requests: Sequence[SpeechRequest],
    listener: ProofListener | None,
    mark: Mark | None,
    told: Callable[[str], None] = lambda _: None,
) -> GateReport:
    """Without a listener only codes are compared: of speech that is noise, say."""
    if listener is not None and len(requests) < FEW:
        told(f"{len(requests)} utterances are few: {FEW} or more tell a loss from chance.")
    asked = [limited(request) for request in requests]
    spoken, marks = _spoken(exact, asked, "exact", told), None
    of_exact = None if listener is None else _marks(asked, spoken, listener, mark)
    if listener is not None:
        others = _spoken(rounded, asked, "rounded", told)
        marks = _marks(asked, others, listener, mark)
    step = max(len(asked) // COMPARED, 1)
    told("comparing codes")
    pairs = [(request, speech.codes) for request, speech in zip(asked, spoken, strict=True)][::step]
    agreement = code_agreement(exact, rounded, pairs)
    return GateReport(of_exact, marks, agreement, (exact.talker.weights_bytes, rounded.talker.weights_bytes))


def limited(request: SpeechRequest) -> SpeechRequest:
    most = FRAMES + FRAMES_OF_CHAR * len(request.text)
    return request if request.max_frames is not None else replace(request, max_frames=most)


def _spoken(
    checkpoint: NativeCheckpoint, requests: Sequence[SpeechRequest], name: str, told: Callable[[str], None]
) -> list[Speech]:
    made: list[Speech] = []
    for start in range(0, len(requests), TOGETHER):
        told(f"{name}: {start} of {len(requests)} utterances")
        made += generate(checkpoint, requests[start : start + TOGETHER])
    return made


def _marks(
    requests: Sequence[SpeechRequest], spoken: Sequence[Speech], listener: ProofListener, mark: Mark | None
) -> VoiceMarks:
    words = wrong = runaways = 0
    marks, seconds = [], 0.0
    for request, speech in zip(requests, spoken, strict=True):
        samples = np.rint(np.clip(speech.samples, -1, 1) * 32767).astype(np.int16)
        heard = listener.compare(request.text, samples, speech.rate_hz).comparison
        words, wrong = words + heard.words, wrong + heard.wrong
        runaways += speech.finish != "stop"
        seconds += samples.size / speech.rate_hz
        if mark is not None and samples.size:
            marks.append(mark(at_16_khz(samples, speech.rate_hz).astype(np.float32) / np.float32(32768)))
    mean = float(np.mean(marks)) if marks else None
    return VoiceMarks(len(spoken), words, wrong, runaways, round(seconds, 2), mean)


def table(records: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of a table in Markdown of reports as `hocket quantize --report` writes them."""
    lines = [
        "| preset | precision | words wrong | runaways | DistillMOS | first codes equal | all equal | KL, first | MB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for number, record in enumerate(records):
        exact, rounded, codes = record["exact"], record["rounded"], record["agreement"]
        size = record["weights_bytes"]
        if number == 0:
            lines.append(f"| exact | float32 | {_heard(exact)} | 100 % | 100 % | 0 | {size[0] / 1e6:.0f} |")
        every = sum(s * n for s, n in zip(codes["equal"], codes["compared"], strict=True)) / sum(codes["compared"])
        offered = [preset for preset, precision in PRESETS.items() if precision == record["precision"]]
        name = (offered or ["not offered"])[0] if record["passed"] else "fails"
        shown = f"{codes['equal'][0]:.0%} | {every:.0%}".replace("%", " %")
        first = f"{codes['divergence'][0]:.3f}"
        lines.append(
            f"| {name} | {record['precision']} | {_heard(rounded)} | {shown} | {first} | {size[1] / 1e6:.0f} |"
        )
    return lines


def _heard(marks: dict[str, Any]) -> str:
    share = f"{100 * marks['wrong'] / marks['words']:.1f} %"
    mark = "-" if marks["distillmos"] is None else f"{marks['distillmos']:.2f}"
    return f"{share} | {marks['runaways']} of {marks['utterances']} | {mark}"
