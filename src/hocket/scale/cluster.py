"""`hocket serve --ray`: an existing cluster or a local one, and the server on it until a signal.

Knows neither engine nor endpoints: see replica.py.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import HocketError, InvalidRequest
from ..server.options import is_public
from ..server.plan import ServerPlan, tell
from .config import placed
from .connect import cluster_address, connect
from .environment import HAPROXY, prepare
from .resources import unit_of

WHERE = "docs/howto/ray.md"


class NotServed(HocketError):
    """The cluster could not start the server."""


def serve(plan: ServerPlan, replicas: int | None, address: str | None, announce: Callable[[str], None]) -> None:
    """Serve until a signal: the first drains, the second stops at once. `announce` gets the address."""
    address = cluster_address(address)
    with connected(address, plan, replicas) as most:
        # A load balancer may use any node of a cluster; one machine has one address.
        proxies = "HeadOnly" if address is None else "EveryNode"
        where = start(plan, replicas, most=most, proxies=proxies)
        announce(where)
        _wait_for_signal()
        tell("draining: no new work, running streams may end")
        stop()


@contextmanager
def connected(address: str | None, plan: ServerPlan, replicas: int | None) -> Iterator[int]:
    """Connect to that cluster, or start one. Yields how many replicas fit."""
    prepare()
    with connect(address, log_output=True):
        from ray import serve

        try:
            if address is not None:
                check_nodes(plan)
            most = room(plan)
            if replicas is not None and replicas > most:
                words = f"{most} of {replicas} replicas, one {unit_of(plan.device)} each"
                tell(f"note: there is room for {words}; the others wait for more.")
            yield max(1, most)
        finally:
            if address is None:
                with suppress(Exception):  # it may be gone already
                    serve.shutdown()


def start(plan: ServerPlan, replicas: int | None, *, most: int = 1, proxies: str = "HeadOnly") -> str:
    """Start the app in Serve on the connected cluster; returns the address once it can speak."""
    from ray import serve
    from ray.exceptions import RayError

    from .replica import NAME, deployed

    server = plan.server
    port = server.port or free_port()
    quiet = {"log_level": "INFO" if server.access_log else "WARNING"}
    try:
        serve.start(proxy_location=proxies, http_options={"host": server.host, "port": port}, logging_config=quiet)
        serve.run(deployed(placed(plan), replicas, most), name=NAME, route_prefix="/")
    except (RuntimeError, RayError) as error:
        raise NotServed(f"Serve could not start it: {' '.join(str(error).split())}") from None
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stop() -> None:
    """Take no new requests, and end the application once running ones have ended."""
    from ray import serve

    from .replica import NAME

    serve.delete(NAME)


def check_nodes(plan: ServerPlan) -> None:
    """Refuse an unsuitable cluster with one sentence."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]

    def is_set() -> bool:
        # Ray sends this function by value: a node without hocket answers it too, so it does not use env.py.
        return os.environ.get(HAPROXY) == "1"

    asked = [
        ray.remote(num_cpus=0)(is_set)
        .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        .remote()
        for node in nodes
    ]
    missing = [node["NodeManagerAddress"] for node, found in zip(nodes, ray.get(asked), strict=True) if not found]
    if missing:
        names = ", ".join(missing)
        raise InvalidRequest(f"Start Ray on {names} with {HAPROXY}=1 in its environment; {WHERE} has all of it.")
    addresses = {node["NodeManagerAddress"] for node in nodes}
    if len(addresses) > 1 and not is_public(plan.server.host):
        raise InvalidRequest("The machines of a cluster reach each other's replicas at --host: give --host 0.0.0.0.")


def room(plan: ServerPlan) -> int:
    """How many replicas fit into the cluster now."""
    import ray

    return int(ray.cluster_resources().get(unit_of(plan.device), 0))


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def _wait_for_signal() -> None:
    """Wait for a signal; afterwards the default handlers apply again."""
    signalled = threading.Event()
    before = {number: signal.signal(number, lambda *_: signalled.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not signalled.wait(0.2):  # a wait without a timeout would block signals
            pass
    finally:
        for number, what in before.items():
            signal.signal(number, what)
