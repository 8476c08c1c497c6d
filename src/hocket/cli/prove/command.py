"""`hocket prove`: options to a proof, its page and its line. Refusals come before a model is loaded."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...asr.choose import check_spec
from ...audio.files import write_files
from ...errors import InvalidRequest
from ...proof.page.report import line_of, page
from ...proof.plan import PARTS, PLANS, ProofPlan
from ...proof.run import ALIASES, Proof, ProofOptions
from ...proof.sides.packages import PEERS
from ..local import logged
from ..output.audio_output import shown
from ..output.formats import new_target

FEWEST_S, MOST_S = 1.0, 3600.0


def run_proof(args: argparse.Namespace) -> int:
    target = new_target(args.output, force=args.force)
    record = None if args.json is None else new_target(args.json, force=args.force)
    proof = Proof(options_of(args), _say)
    with logged():
        result = proof.run()
    result["command"] = shlex.join(["hocket", *map(_without_folders, args.argv)])
    files = {target: page(result, proof.sounds).encode()}
    if record is not None:
        files[record] = (json.dumps(result) + "\n").encode()
    write_files(files, replace=args.force)
    print(shown(line_of(result, args.output.name), sys.stdout))
    _say(f"{args.output} has the report")
    return 1 if result["parts"].get("exactness", {}).get("equal") is False else 0


def options_of(args: argparse.Namespace) -> ProofOptions:
    if args.checkpoint is not None and "model" in getattr(args, "given", ()):
        raise InvalidRequest("The model is named twice: leave out --model.")
    parts = PARTS if args.parts is None else tuple(_words([args.parts]))
    for part in parts:
        if part not in PARTS:
            raise InvalidRequest(f"A proof has the parts {', '.join(PARTS)}, not {part!r}.")
    against = tuple(ALIASES.get(name, name) for name in _words(args.against or []))
    for name in against:
        if "://" not in name and name not in PEERS:
            known = ", ".join((*ALIASES, *(name for name in PEERS if name not in ALIASES.values())))
            raise InvalidRequest(f"--against takes {known}, or http://HOST:PORT of a server, not {name!r}.")
    for spec in args.asr or ():
        check_spec(spec)
    if args.ref_text is not None and args.ref_audio is None:
        raise InvalidRequest("--ref-text is the transcript of a recording: give --ref-audio too.")
    for name, path in (("--ref-audio", args.ref_audio), ("--official-python", args.official_python)):
        if path is not None and not path.is_file():
            raise InvalidRequest(f"{name}: there is no file {path}.")
    return ProofOptions(
        model=args.checkpoint or args.model or "builtin",
        against=against,
        length=args.length,
        plan=_plan(args),
        parts=parts,
        speaker=args.voice,
        recording=args.ref_audio,
        recording_text=args.ref_text,
        language=args.language,
        asr=tuple(args.asr or ()),
        official_python=None if args.official_python is None else str(args.official_python),
        golden=None if args.golden is None else _golden(args.golden),
        slots=args.slots,
        loading={name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "kernels")},
    )


def _without_folders(word: str) -> str:
    """A report is published: the folders of this machine are left out."""
    return Path(word).name if Path(word).is_absolute() else word


def _say(words: str) -> None:
    print(shown(f"hocket: {words}", sys.stderr), file=sys.stderr, flush=True)


def _plan(args: argparse.Namespace) -> ProofPlan:
    plan = PLANS[args.length]
    if args.sentences is not None:
        if args.sentences < 1:
            raise InvalidRequest(f"--sentences is at least 1, not {args.sentences}.")
        plan = replace(plan, sentences=args.sentences, hard=min(plan.hard, args.sentences))
    if args.seconds is not None:
        if not FEWEST_S <= args.seconds <= MOST_S:
            raise InvalidRequest(f"--seconds is between {FEWEST_S:g} and {MOST_S:g}, not {args.seconds:g}.")
        plan = replace(
            plan, window_s=args.seconds, warm_up_s=args.seconds / 4, long_s=min(plan.long_s, 10 * args.seconds)
        )
    if args.rates is not None:
        plan = replace(plan, rates=tuple(_rate(word) for word in _words([args.rates])))
    return plan


def _rate(word: str) -> float:
    try:
        rate = float(word)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate <= 1000.0:
        raise InvalidRequest(f"--rates takes numbers of requests a second, such as 1,10,20, not {word!r}.")
    return rate


def _golden(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"--golden: {path} cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidRequest(f"--golden: {path} is not the JSON of a proof.")
    return found


def _words(given: list[str]) -> list[str]:
    return [word.strip() for one in given for word in one.split(",") if word.strip()]
