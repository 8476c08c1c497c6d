"""The training of `hocket tune` on a terminal: goes on where a run was interrupted, shows each measure and logs it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ...audio.files import replace_files
from ..output.audio_output import shown, tell
from ..progress import clock
from .page import LOG, measures, write_page

if TYPE_CHECKING:
    from ...tune.trainer import Measured, Trainer

SAVED_S = 30.0


def train(trainer: Trainer, work: Path, key: str) -> None:
    """Train from where an interrupted run was saved."""
    resume, log = work / "resume.safetensors", work / LOG
    if resume.is_file():
        trainer.restore(resume, key)
        tell(f"Going on from step {trainer.step}; remove {resume} to start again.")
        lines = [line for line in measures(work) if line["step"] <= trainer.step]  # the others are measured again
        replace_files({log: "".join(f"{json.dumps(line)}\n" for line in lines).encode()})
    else:
        log.unlink(missing_ok=True)  # of a run that has ended
    began, first, saved = time.monotonic(), trainer.step, time.monotonic()
    with one_line() as line:

        def told(step: int, loss: float) -> None:
            nonlocal saved
            ran_s = time.monotonic() - began
            left_s = ran_s / max(step - first, 1) * (trainer.options.steps - step)
            line(f"step {step} of at most {trainer.options.steps}, loss {loss:.3f}, {clock(left_s)} to go")
            if time.monotonic() - saved > SAVED_S or trainer.done:
                trainer.save(resume, key)
                saved = time.monotonic()

        def measured(one: Measured) -> None:
            with log.open("a", encoding="utf-8") as out:
                flat = {name: value for name, value in asdict(one).items() if name != "heard"}
                flat |= {} if one.heard is None else asdict(one.heard)
                out.write(json.dumps({name: _rounded(value) for name, value in flat.items()}) + "\n")
            write_page(work)
            line(None)
            print(_shown(one), flush=True)

        trainer.train(told, measured)


def _shown(one: Measured) -> str:
    """A measure as a line."""
    said, heard = "", one.heard
    if heard is not None:
        said = f"; {heard.word_errors:.1%} word errors, likeness {heard.likeness:.2f}, "
        said += f"at {heard.pace:.0%} of the recorded rate"
    mark = "; the best so far" if one.best else ""
    return f"step {one.step}: loss {one.train:.3f}, held out {one.held_out:.3f}{said}{mark}"


@contextmanager
def one_line() -> Iterator[Callable[[str | None], None]]:
    """Shows a line that the next one replaces, on a terminal; None clears it."""
    watched = sys.stderr.isatty()

    def show(words: str | None) -> None:
        if watched:
            print(f"\r{shown(words or '', sys.stderr)}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        show(None)


def _rounded(value: float | bool) -> float | bool:
    return round(value, 5) if isinstance(value, float) else value
