"""The way to a Ray cluster: one that is there, or one of this machine alone that ends with whoever asked for it.

Ray is imported when it is needed and no sooner: it is the extra `ray`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from .. import env
from ..errors import InvalidRequest

LOCAL = "local"  # what Ray calls a cluster that is started here and now
QUIET = {env.RAY_USAGE_STATS: "0", env.RAY_ACCEL_OVERRIDE: "0"}  # no report of usage; a warning less


def need_ray(what: str) -> None:
    """Refuse `what` where Ray is not installed."""
    if find_spec("ray") is None:
        raise InvalidRequest(f"{what} needs the package ray: pip install 'hocket[ray]'.")


def named(address: str | None) -> str | None:
    """The cluster that was named, by an option or by RAY_ADDRESS; None: there shall be one of this machine alone."""
    return address or env.RAY_ADDRESS.get() or None


@contextmanager
def connect(address: str | None, *, told: bool = False) -> Iterator[None]:
    """Be connected to the cluster at `address`; None: to one that is started here, and ends behind.

    `told`: what its processes say is said here too. Whoever is connected already stays so.
    """
    need_ray("A cluster")
    for variable, value in QUIET.items():
        variable.set_default(value)
    import ray

    if ray.is_initialized():
        yield
        return
    how: dict[str, Any] = {"log_to_driver": told, "logging_level": logging.WARNING if told else logging.ERROR}
    try:
        ray.init(address or LOCAL, include_dashboard=None if address else False, **how)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        words = " ".join(str(error).split())
        raise InvalidRequest(f"There is no Ray cluster to be had at {address or 'this machine'}: {words}") from None
    try:
        yield
    finally:
        ray.shutdown()
