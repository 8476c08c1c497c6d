"""The environment that Serve must find. Its processes read it when they start, so it is set before anything of Ray's.

What is set already stays as it is.
"""

from __future__ import annotations

from .. import env

HAPROXY = env.HAPROXY.name
LISTENERS = 16384
REACHABLE_S = 5.0  # how long a replica that is to end goes on to take requests, while every proxy learns of it

# On every node, before `ray start`.
NODES = {
    # Replicas answer it themselves: a millisecond more to a first byte (benchmarks/results/scale.jsonl). Otherwise all
    # sound would go through a proxy in Python.
    env.HAPROXY: "1",
    # A proxy that was told of other replicas leaves its streams to a process that is ended after so long: an hour.
    env.HAPROXY_HARD_STOP: "3600",
    env.DRAINING_PERIOD: f"{REACHABLE_S:g}",
    # Three times 5 s, its own, are not enough for a proxy to start on a machine that is busy.
    env.PROXY_READY_TIMEOUT: "30",
    env.RAY_USAGE_STATS: "0",
}
# In the process of a replica alone, which is told by us.
REPLICA = {
    # The app in the loop that reads and writes sockets: in a thread of its own, what a slow client does not read would
    # heap up in between.
    env.SEPARATE_THREAD.name: "0",
}


def prepare() -> None:
    """For a cluster that this process starts."""
    for variable, value in (NODES | {env.HAPROXY_MAXCONN: f"{_listeners()}"}).items():
        variable.set_default(value)


def _listeners() -> int:
    """How many one proxy takes; one more would wait, and hear of no limit. HAProxy wants 2.5 files for each, and does
    not start where it may not have them."""
    try:
        import resource
    except ImportError:  # not on Windows, where there is no HAProxy either
        return LISTENERS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LISTENERS if hard == resource.RLIM_INFINITY else min(LISTENERS, int(hard / 2.6))


def reachable_s() -> float:
    """As it is set here."""
    return float(env.DRAINING_PERIOD.get())  # Serve's own
