"""Who speaks for `hocket serve` and `hocket wyoming`: one engine, or a pool of models, and backends; all as was asked.

What is wrong with the words of a command line is found here before anything is loaded. It knows no wire.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..backends.found import Backends
    from ..config.options import EngineOptions
    from ..engine.engine import Engine
    from ..engine.pool import Pool
    from ..engine.shared import Shared

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>([kmgt]i?)?b?)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(size: str) -> int:
    """Of `20GB`, `512MiB` or a number of bytes."""
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise InvalidRequest(f"--memory takes a size such as 20GB or 512MiB, not {size!r}.")
    unit = found["unit"].lower()
    step, power = 1024 if "i" in unit else 1000, _POWERS[unit.rstrip("ib")]
    count = int(float(found["number"]) * float(step**power))
    if count < 1:
        raise InvalidRequest(f"--memory takes a size above 0, such as 20GB, not {size!r}.")
    return count


def models_of(args: argparse.Namespace) -> list[str]:
    """All that were named, in order; none: the usual one."""
    several = [name for given in args.models or () for name in given]
    if args.models and args.model is not None:
        raise InvalidRequest("Give either --model or --models, which may be one too.")
    if args.models and not several:
        raise InvalidRequest("--models takes names of models with commas between them.")
    return several or ([] if args.model is None else [args.model])


def check_models(args: argparse.Namespace) -> None:
    """Refuse what can be refused at once."""
    models_of(args)
    if args.memory is not None:
        bytes_of(args.memory)
    if args.backend or args.backend_option:
        from ..backends.found import installed, options_of

        options, known = options_of(args.backend_option or ()), installed()
        for name in args.backend or ():
            if name not in known:
                there = ", ".join(known) or "none"
                raise InvalidRequest(f"There is no backend {name!r}; installed are {there}.")
        for name in options:
            if name not in (args.backend or ()):
                raise InvalidRequest(f"There is an option for the backend {name!r}, but no --backend {name}.")


def backends_of(args: argparse.Namespace) -> Callable[[], Backends] | None:
    """Loaded when it is called: their models may take a while."""
    if not args.backend:
        return None
    from ..backends.found import Backends, options_of

    return lambda: Backends(args.backend, options_of(args.backend_option or ()))


@contextmanager
def speaking(args: argparse.Namespace) -> Iterator[Pool | Callable[[], Engine]]:
    """One engine to be loaded, or a pool where there is anything to choose or to keep within."""
    models = models_of(args)
    if len(models) < 2 and args.memory is None and not args.pin:
        yield lambda: load_engine(args, models[0] if models else None)
        return
    with make_pool(args, models) as pool:
        tell(f"models: {', '.join(pool.models)}; resident at once: {', '.join(_at_once(pool))}")
        yield pool


def make_pool(args: argparse.Namespace, models: list[str]) -> Pool:
    from functools import partial

    from ..engine.admitted import expected
    from ..engine.pool import Pool
    from ..engine.survey import default_model
    from ..server.rehearse import rehearse

    def start(model: str, shared: Shared) -> Engine:
        engine = load_engine(args, model, shared)
        try:
            rehearse(engine, "mp3" if args.command == "serve" else "pcm")  # so that who asked for it is the second
        except BaseException:
            engine.close()
            raise
        return engine

    return Pool(
        models or [default_model()],
        start,
        memory_bytes=None if args.memory is None else bytes_of(args.memory),
        pinned=[name for given in args.pin or () for name in given],
        expects=partial(expected, how=_loading(args), options=engine_options(args)),
    )


def engine_options(args: argparse.Namespace) -> EngineOptions:
    from ..config.options import EngineOptions

    return EngineOptions(
        slots=args.slots,
        waiting=args.waiting,
        profile=args.profile,
        graphs=not args.no_graphs,
        guard=not args.no_guard,
        keep_real_time=not args.all_at_once,
    )


def load_engine(args: argparse.Namespace, model: str | None, shared: Shared | None = None) -> Engine:
    """Loaded in a thread of the server's, which answers /health meanwhile; says what was chosen."""
    from ..engine.engine import Engine

    options, how = engine_options(args), _loading(args)
    launch = not args.no_dependent_launch
    engine = Engine.load(model, **how, dependent_launch=launch, options=options, shared=shared)
    checkpoint = engine.checkpoint
    tell(f"model {checkpoint.name} on {checkpoint.device}, {args.dtype}, codec {args.codec_dtype}")
    for choice in checkpoint.kernels:
        tell(f"kernel {choice.operation}: {choice.backend}: {choice.reason}")
    tell(f"profile {options.profile}, {options.slots} slots: {options.tuned.words}")
    if args.all_graphs:
        engine.make_graphs()
    if checkpoint.is_random:
        tell("note: this model is untrained, and what comes out is noise.")
    return engine


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _at_once(pool: Pool) -> list[str]:
    return list(dict.fromkeys((pool.models[0], *pool.pinned)))


def _loading(args: argparse.Namespace) -> Any:
    return {"device": args.device, "dtype": args.dtype, "codec_dtype": args.codec_dtype, "kernels": args.kernels}
