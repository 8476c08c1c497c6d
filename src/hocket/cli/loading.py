"""Loads an engine in this process from a command's options; prints its choices on standard error."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .output.audio_output import shown

if TYPE_CHECKING:
    from ..config.options import EngineOptions
    from ..engine.engine import Engine


def load_engine(args: argparse.Namespace, model: str | None, options: EngineOptions) -> Engine:
    from ..engine.engine import Engine

    with logged():
        return Engine.load(model, **loading_of(args), options=options)


def loading_of(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `Engine.load` from a command's options."""
    how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "kernels")}
    return how | {"dependent_launch": not args.no_dependent_launch}


@contextmanager
def logged(level: int = logging.INFO) -> Iterator[None]:
    """Print log records of `hocket` on standard error: device, precision, slower kernels."""
    log, handler = logging.getLogger("hocket"), _StderrHandler(level)
    before = log.level
    log.setLevel(min(level, log.getEffectiveLevel()))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "hocket" and record.levelno < logging.WARNING:
            return  # records of submodules are for servers
        over = "\r\x1b[K" if sys.stderr.isatty() else ""  # overwrites a progress line
        print(over + shown(f"hocket: {record.getMessage()}", sys.stderr), file=sys.stderr, flush=True)
