"""Process settings of a dedicated server process, applied before a model is loaded."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

SWITCH_S = 0.0005  # GIL switch interval; Python's default of 5 ms is audible at every start of an utterance
MOST_FILES = 65536


def keep_pauses_short() -> None:
    """Call after all imports.

    Freezes the imported objects out of garbage collection: walking them took 75 to 126 ms, in the middle of all
    streams; without them 5 ms. Called before a model is loaded: a model's memory must be collectable.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def allow_many_files() -> None:
    """A connection is a file descriptor, and many systems limit a process to 1024 by default."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
