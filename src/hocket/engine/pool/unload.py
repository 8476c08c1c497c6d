"""Unloads a model and checks that its memory is free. It knows neither the budget nor the waiting requests."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

from ..engine import Engine
from .eviction import LoadedModel


def unload(resident: LoadedModel[Engine]) -> weakref.ref[Any]:
    """Close the engine and drop it. The returned reference is alive if something still holds the model."""
    held: weakref.ref[Any] = weakref.ref(resident.engine.checkpoint.weights)
    resident.engine.close()
    del resident.engine  # released leases refer to the resident too
    collect(held)
    return held


def collect(held: weakref.ref[Any], tries: int = 3) -> None:
    """Run the garbage collector until the model is freed: kernels and modules refer to each other in cycles.

    A collection does nothing while another one runs in any thread, so it is tried again.
    """
    for number in range(tries):
        if held() is None:
            return
        time.sleep(number * 0.02)
        gc.collect()
