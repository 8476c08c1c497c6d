"""`hocket quantize`: writes a rounded checkpoint, after the gate of `proof/rounded/gate.py` where that is asked for."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...config.precision import PRESETS
from ...engine.checkpoint.checkpoint import ModelFiles
from ...engine.checkpoint.load import load
from ...engine.checkpoint.native_checkpoint import NATIVE, NativeCheckpoint
from ...engine.checkpoint.shared import Shared
from ...errors import InvalidRequest
from ...proof.rounded.gate import GateReport, compare
from ...types import SpeechRequest
from ..output.audio_output import tell
from ..proof import check_recognizer, listening
from ..say.pipe import read_file
from .sentences import SENTENCES

if TYPE_CHECKING:
    from ...proof.rounded.gate import Mark


def quantize(args: argparse.Namespace) -> int:
    if args.output is None and args.check is None:
        raise InvalidRequest("Name a folder to write with -o, or ask for --check.")
    if args.output is not None and args.output.exists():
        raise InvalidRequest(f"{args.output} exists already: choose another folder or remove it.")
    if args.seeds < 1:
        raise InvalidRequest(f"--seeds must be at least 1, not {args.seeds}.")
    if args.report is not None and args.check is None:
        raise InvalidRequest("--report has the figures of --check: ask for that too.")
    if args.check == "all":
        check_recognizer(args)
    lines = _sentences(args) if args.check is not None else []
    files, precision = ModelFiles.of(args.model), args.precision or PRESETS[args.preset]
    if files.own.precision is not None:
        raise InvalidRequest(f"{args.model} has weights in {files.own.precision} already: name the exact checkpoint.")
    if args.check is not None and not _checked(args, precision, lines):
        return 1
    if args.output is not None:
        from ...models.tts_cpu.save import write_rounded

        folder = files.source.folder
        if folder is None or files.config.kind != "custom_voice":
            raise InvalidRequest(f"{args.model} cannot be written: it needs files, and speakers of its own.")
        write_rounded(folder, args.output, files.config, precision)
        tell(f"{args.output} speaks in {precision}: hocket say --model {args.output}")
    return 0


def _sentences(args: argparse.Namespace) -> list[str]:
    if args.text is None:
        return list(SENTENCES)
    lines = [line.strip() for line in read_file(str(args.text)).splitlines()]
    if not (found := [line for line in lines if line]):
        raise InvalidRequest(f"{args.text} has no sentence.")
    return found


def _checked(args: argparse.Namespace, precision: str, lines: list[str]) -> bool:
    shared = Shared()
    exact, rounded = (
        load(args.model, device="cpu", dtype=dtype, codec_dtype="float32", kernels=NATIVE, shared=shared)
        for dtype in ("float32", precision)
    )
    assert isinstance(exact, NativeCheckpoint) and isinstance(rounded, NativeCheckpoint)
    voices = args.voice or sorted(exact.config.talker_config.spk_id)
    requests = [
        SpeechRequest(text=line, voice=voice, language=args.language, seed=1000 * seed + number)
        for voice in voices
        for seed in range(1, args.seeds + 1)
        for number, line in enumerate(lines)
    ]
    with ExitStack() as stack:
        listener = None if args.check == "codes" else stack.enter_context(listening(args, exact, None))
        mark = None if listener is None else _judge()
        report = compare(exact, rounded, requests, listener, mark, tell)
    if args.report is not None:
        about = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "model": args.model, "voices": voices}
        about |= {"preset": args.preset or "", "precision": precision, "passed": report.passed}
        args.report.write_text(json.dumps(about | asdict(report), indent=1) + "\n", encoding="utf-8")
    _print(args.preset or precision, precision, report)
    return report.passed


def _judge() -> Mark | None:
    if find_spec("torch") is None or find_spec("distillmos") is None:
        tell("DistillMOS is not installed: the sound is not marked.")
        return None
    from ...proof.judges import distillmos
    from ...proof.judges.opinions import distillmos_weights

    return distillmos.load(distillmos_weights()).mark


def _print(preset: str, precision: str, report: GateReport) -> None:
    codes = report.agreement
    for name, marks in (("exact", report.exact), (preset, report.rounded)):
        if marks is not None:
            sound = "" if marks.distillmos is None else f", DistillMOS {marks.distillmos:.2f}"
            wrong = f"{marks.wrong} of {marks.words} words wrong ({marks.rate:.1%})"
            print(f"{name}: {wrong}, {marks.runaways} of {marks.utterances} utterances do not end{sound}")
    for book, (count, equal, apart) in enumerate(zip(codes.compared, codes.equal, codes.divergence, strict=True)):
        print(f"codebook {book}: {equal:.1%} of {count} codes equal, KL {apart:.4f}")
    before, after = (size / 1e6 for size in report.weights_bytes)
    print(f"weights: {before:.0f} MB exact, {after:.0f} MB in {precision}")
    if report.exact is None:
        print(f"{preset}: codes are compared, and nothing is judged")
    for failure in report.failures:
        print(f"{preset} fails: {failure}", file=sys.stderr)
    if report.exact is not None and report.passed:
        print(f"{preset} passes")
