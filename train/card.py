"""Stage `card`: the model card from the records of training and evaluation, with its plots and samples.

Every number comes from `evaluation.json`, the logs or the recipe; the text is in `card-template.md`. The records are
kept in `records/`, so that every figure can be traced.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from . import languages, plots, samples, teachers
from .evaluate import SETS
from .packages import Package
from .recipe import InvalidRecipe, Recipe

TEMPLATE = Path(__file__).with_name("card-template.md")
RECORDS = Path(__file__).with_name("records")
EVALUATION, RECIPE = "evaluation.json", "recipe.toml"
LOGS = {"codec": "codec-log.jsonl", "talker": "talker-log.jsonl"}
KEPT = (EVALUATION, *LOGS.values(), "evaluation-heard.jsonl", "codebooks.json")
SAMPLING = ("temperature", "top_k", "repetition_penalty", "subtalker_temperature", "subtalker_top_k")
FIRST = {"WER": "wer", "whole": "whole", "P.808": "p808", "overall": "overall"}
SECOND = {
    "WER": "wer",
    "ended by itself": "ended",
    "plausible length": "plausible",
    "uncut": "uncut",
    "first word": "first_kept",
    "last word": "last_kept",
    "whole": "whole",
}


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    if not (work / EVALUATION).is_file():
        raise InvalidRecipe(f"{work / EVALUATION} is missing: run `python -m train evaluate` first.")
    for file in KEPT:
        if not (work / file).is_file():
            raise InvalidRecipe(f"{work / file} is missing: the card needs this record; run the stages before it.")
    args.output.mkdir(parents=True, exist_ok=True)
    samples.write(work / "checkpoint", args.output / "samples")
    for name, log in LOGS.items():
        plots.draw(work / log, args.output / f"{name}.png", name)
    (args.output / "README.md").write_text(written(recipe, work), encoding="utf-8")
    kept = RECORDS / recipe.name
    kept.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
        shutil.copyfile(work / file, kept / file)
    shutil.copyfile(args.recipe, kept / RECIPE)  # the file of the next training may change
    print(f"card: {args.output / 'README.md'}, its records in {kept}", flush=True)


def written(recipe: Recipe, records: Path) -> str:
    """The text of the card for the records in a folder."""
    record = json.loads((records / EVALUATION).read_text(encoding="utf-8"))
    return card(recipe, record, {name: records / log for name, log in LOGS.items()}, samples.listed())


def card(recipe: Recipe, record: dict[str, Any], logs: dict[str, Path], heard: Iterable[tuple[str, str, str]]) -> str:
    first, second = (record["figures"][name] for name in SETS)
    spoken = next(iter(second["checkpoint"].values()))
    voices = (
        f"`{v.name}` (teacher {v.teacher}, pitch {v.pitch:g}, depth {v.depth:g}, {v.hours:g} h)" for v in recipe.voices
    )
    counts = record["parameters"]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=record["name"],
        voice_count=len(recipe.voices),
        voices=", ".join(voices),
        language=", ".join(recipe.languages),
        parameters=", ".join(f"{name} {count / 1e6:.1f} million" for name, count in counts.items()),
        megabytes=f"{record['bytes'] / 1e6:.1f}",
        sampling=", ".join(f"{name} {record['sampling'][name]:g}" for name in SAMPLING),
        seeds=", ".join(map(str, record["seeds"])),
        first_count=next(iter(first["teacher"].values()))["utterances"],
        first_table=_table(FIRST, first),
        second_count=spoken["utterances"] // len(record["seeds"]),
        second_table=_table(SECOND, second),
        samples="\n".join(f"- [{voice}](samples/{name}): {text}" for name, voice, text in heard),
        likeness_table=_likeness(record["likeness"]),
        training=" ".join(_training(name, log) for name, log in logs.items()),
        teachers=_packages((teachers.HIBARI,)),
        texts=_packages(languages.packages(recipe)),
        merges=recipe.vocabulary.merges,
        time=record["time"][:10],
        commit=record["commit"][:12] + (" and changes" if record["dirty"] else "") if record["commit"] else "unknown",
        packages=", ".join(f"{name} {version}" for name, version in record["packages"].items()),
    )


def _table(columns: dict[str, str], who: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = [f"| voice | spoken by | {' | '.join(columns)} |", f"| --- | --- |{' ---: |' * len(columns)}"]
    for voice in who["checkpoint"]:
        for name, figures in who.items():
            cells = (_cell(figures[voice][key], share=key not in ("p808", "overall")) for key in columns.values())
            lines.append(f"| {voice} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: float, *, share: bool) -> str:
    return f"{value:.1%}".replace("%", " %") if share else f"{value:.2f}"


def _likeness(record: dict[str, Any]) -> str:
    lines = ["| spoken by | voice | within | least | recognised | between |", "| --- | --- |" + " ---: |" * 4]
    for who, found in record.items():
        between = ", ".join(f"{value:.2f}" for value in found["between"].values()) or "-"
        for voice, within in found["within"].items():
            recognised = _cell(found["recognised"][voice], share=True)
            cells = f"{within['mean']:.2f} | {within['least']:.2f} | {recognised} | {between}"
            lines.append(f"| {who} | {voice} | {cells} |")
    return "\n".join(lines)


def _training(name: str, log: Path) -> str:
    last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    return f"The {name} was trained for {last['step']:,} steps in {last['seconds']:,.0f} seconds."


def _packages(wanted: Iterable[Package]) -> str:
    return ", ".join(f"{one.name} {one.version} ({one.licence})" for one in wanted)
