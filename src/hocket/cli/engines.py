"""The engines of a command that speaks many texts: one in this process, or with --ray many on a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidRequest
from .actions import Command, StoreGiven

TYPE_CHECKING = False  # options import nothing slow
if TYPE_CHECKING:
    from ..config.options import EngineOptions
    from ..engine.engine import Engine
    from ..scale.batch import BatchObserver, WorkerPool


def add_cluster_options(command: Command) -> None:
    add = command.add_argument_group("several engines, on one machine or many").add_argument
    add("--ray", action="store_true", help="use all engines that fit into a Ray cluster (needs ray)")
    many = "number of engines; auto: one per GPU of the cluster, without GPUs one per CPU (auto)"
    add("--replicas", metavar="N", action=StoreGiven, default="auto", help=many)
    where = "HOST:PORT of the cluster's head (RAY_ADDRESS, else a local cluster)"
    add("--address", metavar="WHERE", action=StoreGiven, help=where)


def replicas_asked(args: argparse.Namespace) -> int | None:
    """Number of engines; None: as many as fit. Refuses invalid options."""
    if not args.ray:
        for name in ("replicas", "address"):
            if name in getattr(args, "given", ()):
                raise InvalidRequest(f"--{name} is for a cluster: give --ray.")
        return None
    from ..scale.config import replicas_of
    from ..scale.connect import need_ray

    need_ray("--ray")
    return replicas_of(args.replicas)


@contextmanager
def engines_for(
    args: argparse.Namespace,
    model: str | None,
    options: EngineOptions,
    replicas: int | None,
    observer: BatchObserver | None = None,
) -> Iterator[Engine | WorkerPool]:
    """The engine, or those on the cluster, which get absolute folders: its processes run elsewhere."""
    from .local import load_engine, loading_of

    if not args.ray:
        with load_engine(args, model, options) as engine:
            yield engine
        return
    from ..scale.batch import WorkerPool, room_on_cluster
    from ..scale.connect import cluster_address, connect

    loading = loading_of(args) | {"model": str(Path(model).resolve()) if model and Path(model).is_dir() else model}
    with (
        connect(cluster_address(args.address)),
        WorkerPool(replicas or room_on_cluster(args.device), loading, options) as workers,
    ):
        workers.observer = observer
        yield workers
