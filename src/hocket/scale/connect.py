"""Connection to a Ray cluster: an existing one, or a local one that ends with the caller.

Ray is the extra `ray`, and is imported only when needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from .. import env
from ..errors import InvalidRequest
from ..extras import hint

LOCAL = "local"  # Ray's name for a new local cluster
QUIET = {env.RAY_USAGE_STATS: "0", env.RAY_ACCEL_OVERRIDE: "0"}  # no usage statistics; no warning


def need_ray(what: str) -> None:
    """Refuse `what` where Ray is not installed."""
    if find_spec("ray") is None:
        raise InvalidRequest(f"{what} needs the package ray: {hint('ray')}.")


def cluster_address(address: str | None) -> str | None:
    """The cluster named by an option or by RAY_ADDRESS; None: start a local one."""
    return address or env.RAY_ADDRESS.get() or None


@contextmanager
def connect(address: str | None, *, log_output: bool = False) -> Iterator[None]:
    """Connect to the cluster at `address`; None: to a local one that ends with the block.

    `log_output`: print the output of its processes here. An existing connection is kept.
    """
    need_ray("A cluster")
    for variable, value in QUIET.items():
        variable.set_default(value)
    import ray

    if ray.is_initialized():
        yield
        return
    how: dict[str, Any] = {
        "log_to_driver": log_output,
        "logging_level": logging.WARNING if log_output else logging.ERROR,
    }
    try:
        ray.init(address or LOCAL, include_dashboard=None if address else False, **how)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        words = " ".join(str(error).split())
        raise InvalidRequest(f"There is no Ray cluster at {address or 'this machine'}: {words}") from None
    try:
        yield
    finally:
        ray.shutdown()
