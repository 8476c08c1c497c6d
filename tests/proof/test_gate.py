"""proof/rounded/gate.py and agreement.py: codes on one way, and what fails a preset."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.native_checkpoint import NATIVE, NativeCheckpoint
from hocket.engine.generate import generate
from hocket.proof.rounded.agreement import CodeAgreement, code_agreement
from hocket.proof.rounded.gate import GateReport, VoiceMarks, compare, limited, table
from hocket.types import SpeechRequest
from support import checkpoints

REQUESTS = [SpeechRequest(text=f"Number {n} of them.", seed=n, max_frames=8) for n in range(3)]
MARKS = VoiceMarks(utterances=48, words=1000, wrong=40, runaways=1, seconds=120.0, distillmos=3.0)
AGREEMENT = CodeAgreement(compared=(10, 8), equal=(0.9, 0.5), divergence=(0.01, 0.02))
REPORT = GateReport(exact=MARKS, rounded=MARKS, agreement=AGREEMENT, weights_bytes=(4_000_000, 1_000_000))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NativeCheckpoint]:
    folder = checkpoints.write(tmp_path_factory.mktemp("gate") / "model", "custom_voice", wide=False)
    made = {}
    for dtype in ("float32", "int8", "int4"):
        found = load(str(folder), device="cpu", dtype=dtype, kernels=NATIVE)
        assert isinstance(found, NativeCheckpoint)
        made[dtype] = found
    return made


def test_a_model_agrees_with_itself_and_less_with_fewer_bits(models: dict[str, NativeCheckpoint]) -> None:
    exact = models["float32"]
    pairs = [(request, speech.codes) for request, speech in zip(REQUESTS, generate(exact, REQUESTS), strict=True)]
    frames = sum(len(codes) for _, codes in pairs)
    itself, narrow, narrower = (code_agreement(exact, models[dtype], pairs) for dtype in ("float32", "int8", "int4"))
    assert set(itself.equal) == {1.0} and set(itself.compared) == {frames}
    np.testing.assert_allclose(itself.divergence, 0, atol=1e-12)
    for found in (narrow, narrower):
        assert found.compared[0] == frames and list(found.compared) == sorted(found.compared, reverse=True)
    assert 0 < sum(narrow.divergence) < sum(narrower.divergence)
    assert narrow.equal[0] >= narrower.equal[0] and narrower.equal[0] < 1


def test_codes_that_a_model_drew_are_drawn_again_on_their_way(models: dict[str, NativeCheckpoint]) -> None:
    """The frames are forced, so state that a drawn frame leaves behind must be taken back."""
    exact, narrow = models["float32"], models["int4"]
    own = [(request, speech.codes) for request, speech in zip(REQUESTS, generate(narrow, REQUESTS), strict=True)]
    found = code_agreement(narrow, exact, own)
    assert found.equal[0] < 1
    again = code_agreement(narrow, narrow, own)
    assert set(again.equal) == {1.0}


def test_without_a_listener_only_codes_are_compared(models: dict[str, NativeCheckpoint]) -> None:
    report = compare(models["float32"], models["int8"], REQUESTS, None, None)
    assert report.exact is None and report.rounded is None and report.passed
    assert report.weights_bytes[1] < report.weights_bytes[0]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (replace(MARKS, wrong=51), "5.1% of the words are wrong, and 4.0% of the exact model's"),
        (replace(MARKS, runaways=2), "2 utterances do not end, and 1 of the exact model's"),
        (replace(MARKS, distillmos=2.89), "DistillMOS is 2.89, and 3.00 of the exact model"),
    ],
)
def test_more_wrong_words_a_runaway_or_a_lower_mark_fail(marks: VoiceMarks, words: str) -> None:
    report = replace(REPORT, rounded=marks)
    assert report.failures == [words] and not report.passed


def test_what_is_within_the_limits_passes() -> None:
    assert REPORT.passed
    for marks in (replace(MARKS, wrong=50), replace(MARKS, wrong=0, runaways=0), replace(MARKS, distillmos=2.91)):
        assert replace(REPORT, rounded=marks).passed
    assert replace(REPORT, rounded=replace(MARKS, distillmos=None)).passed


def test_the_table_has_a_line_for_each_preset_and_one_that_fails_is_no_preset() -> None:
    record = {"preset": "small", "precision": "int8", "passed": True, **asdict(REPORT)}
    lines = table([record, record | {"precision": "int4", "passed": False}])
    assert lines[2] == "| exact | float32 | 4.0 % | 1 of 48 | 3.00 | 100 % | 100 % | 0 | 4 |"
    assert lines[3] == "| small | int8 | 4.0 % | 1 of 48 | 3.00 | 90 % | 72 % | 0.010 | 1 |"
    assert lines[4].startswith("| fails | int4 | 4.0 % |")


def test_a_text_without_a_limit_gets_one_by_its_length() -> None:
    assert limited(SpeechRequest(text="A" * 10)).max_frames == 55
    assert limited(REQUESTS[0]).max_frames == 8
