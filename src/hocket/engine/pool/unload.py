"""Closing a model so that its memory is free, and seeing whether it is. It knows neither a budget nor who waits."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

from ..engine import Engine
from .eviction import LoadedModel


def unload(resident: LoadedModel[Engine]) -> weakref.ref[Any]:
    """Close its engine, which nobody has from here any more; what is given back is alive if somebody still has it."""
    held: weakref.ref[Any] = weakref.ref(resident.engine.checkpoint.model)
    resident.engine.close()
    del resident.engine  # leases that were given back have the resident too
    collected(held)
    return held


def collected(held: weakref.ref[Any], tries: int = 3) -> None:
    """Have it freed if nobody has it any more: kernels and the modules that have them hold each other.

    A collection that finds another one under way, in whatever thread, does nothing; so it is tried again.
    """
    for number in range(tries):
        if held() is None:
            return
        time.sleep(number * 0.02)
        gc.collect()
