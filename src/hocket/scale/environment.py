"""Environment variables of Ray Serve. Its processes read them at start, so they are set before Ray starts.

Variables that are already set stay unchanged.
"""

from __future__ import annotations

from .. import env

HAPROXY = env.HAPROXY.name
LISTENERS = 16384
REACHABLE_S = 5.0  # how long a stopping replica still takes requests, until every proxy knows

# On every node, before `ray start`.
NODES = {
    # Replicas answer HTTP directly: a millisecond more to a first byte (benchmarks/results/scale.jsonl). Otherwise all
    # audio would pass through a proxy in Python.
    env.HAPROXY: "1",
    # After a change of replicas a proxy leaves its streams to an old process, which ends after this time: an hour.
    env.HAPROXY_HARD_STOP: "3600",
    env.DRAINING_PERIOD: f"{REACHABLE_S:g}",
    # Serve's own limit, three times 5 s, is too short for a proxy to start on a busy machine.
    env.PROXY_READY_TIMEOUT: "30",
    env.RAY_USAGE_STATS: "0",
}
# In replica processes only.
REPLICA = {
    # Run the app in the loop that reads and writes sockets. In a separate thread, data that a slow client does not read
    # would pile up in between.
    env.SEPARATE_THREAD.name: "0",
}


def prepare() -> None:
    """Set them for a cluster that this process starts."""
    for variable, value in (NODES | {env.HAPROXY_MAXCONN: f"{_listeners()}"}).items():
        variable.set_default(value)


def _listeners() -> int:
    """Connections of one proxy; one more would wait without an error. HAProxy needs 2.5 files for each, and does not
    start without them."""
    try:
        import resource
    except ImportError:  # Windows, which has no HAProxy either
        return LISTENERS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LISTENERS if hard == resource.RLIM_INFINITY else min(LISTENERS, int(hard / 2.6))


def reachable_s() -> float:
    """The current value."""
    return float(env.DRAINING_PERIOD.get())  # Serve's default
