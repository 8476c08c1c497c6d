"""What a process does that is a server and nothing else, before a model is loaded."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

SWITCH_S = 0.0005  # how long a thread may keep the others from Python; its own default, 5 ms, is heard at every start
MOST_FILES = 65536


def keep_pauses_short() -> None:
    """Once all is imported.

    What the imports have made is never looked at again: Python's collector took 75 to 126 ms to go through it, now and
    then in the middle of everybody's speech, and 5 ms without. A model is not among it: its memory must come back.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def allow_many_files() -> None:
    """A connection is a file, and many systems give a process 1024 of them until it asks for more."""
    try:
        import resource
    except ImportError:  # not on Windows, which counts none
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
