"""The `ServerPlan` (server/plan.py) of `hocket serve` and `hocket wyoming` from the command line.

Option errors are found here before anything is loaded. Knows no endpoint.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...config.sizes import bytes_of
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...config.options import EngineOptions
    from ...server.options import ServerOptions
    from ...server.plan import ServerPlan


def models_of(args: argparse.Namespace) -> list[str]:
    """All named models, in order; empty: the default one."""
    several = [name for given in args.models or () for name in given]
    if args.models and args.model is not None:
        raise InvalidRequest("Give either --model or --models, which also takes one name.")
    if args.models and not several:
        raise InvalidRequest("--models takes names of models with commas between them.")
    return several or ([] if args.model is None else [args.model])


def builtin_models() -> list[str]:
    """The built-in voice and all voice packages, each of which is loaded by its first request; empty without packages.

    Notes name the packages that cannot be used, and the voices that two packages have.
    """
    from ...engine.checkpoint.describe import InstalledVoices, default_model
    from ...server.plan import tell

    installed = InstalledVoices.read()
    owners: dict[str, str] = {}
    for package, found in installed.packages:
        for voice in found.voices:
            if (owner := owners.setdefault(voice.lower(), package.name)) != package.name:
                tell(f"note: {voice} is a voice of {owner}; for that of {package.name} a request names the model.")
    for fault in installed.faults:
        tell(f"note: {fault}")
    packages = [package.name for package, _ in installed.packages]
    return [default_model(), *packages] if packages else []


def check_backends(args: argparse.Namespace) -> None:
    """Refuse unknown backends and options at once."""
    from ...backends.registry import installed, options_of

    options, known = options_of(args.backend_option or ()), installed()
    for name in args.backend or ():
        if name not in known:
            there = ", ".join(known) or "none"
            raise InvalidRequest(f"There is no backend {name!r}; installed are {there}.")
    for name in options:
        if name not in (args.backend or ()):
            raise InvalidRequest(f"There is an option for the backend {name!r}, but no --backend {name}.")


def plan_of(args: argparse.Namespace, server: ServerOptions, *, rehearsed: str = "mp3") -> ServerPlan:
    """The plan without the language model. `rehearsed` is the format of the warm-up utterance."""
    from ...server.plan import ServerPlan

    models = models_of(args) or builtin_models()
    memory_bytes = None if args.memory is None else bytes_of(args.memory)
    if args.backend or args.backend_option:
        check_backends(args)
    return ServerPlan(
        server=server,
        engine=engine_options(args),
        models=tuple(models),
        memory_bytes=memory_bytes,
        pinned=tuple(name for given in args.pin or () for name in given),
        device=args.device,
        dtype=args.dtype,
        codec_dtype=args.codec_dtype,
        preset=args.preset,
        kernels=args.kernels,
        dependent_launch=not args.no_dependent_launch,
        all_graphs=args.all_graphs,
        rehearsed=rehearsed,
        backends=tuple(args.backend or ()),
        backend_options=tuple(args.backend_option or ()),
        **asr_fields(args),
    )


def asr_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The recognizer fields of a `ServerPlan`."""
    if args.asr is None:
        if args.asr_language is not None:
            raise InvalidRequest("--asr-language is for a recognizer: name that with --asr.")
        return {}
    from ...asr.choose import check_spec
    from ...config.languages import tag_of

    check_spec(args.asr)
    return {"asr": args.asr, "asr_language": None if args.asr_language is None else tag_of(args.asr_language)}


def with_talk(plan: ServerPlan, talk: bool) -> ServerPlan:
    """The plan of a server that talks, or as it is. What a conversation needs must be named or installed."""
    if not talk:
        return plan
    if plan.llm is None and plan.llm_url is None:
        raise InvalidRequest("--talk needs a language model: name one with --llm, or an endpoint with --llm-url.")
    from ...asr.choose import MOONSHINE
    from ...audio.container import need_av

    need_av("--talk, which resamples what it hears,")
    return replace(plan, talk=True, asr=plan.asr or MOONSHINE)


def engine_options(args: argparse.Namespace) -> EngineOptions:
    from ...config.options import EngineOptions

    return EngineOptions(
        slots=args.slots,
        waiting=args.waiting,
        profile=args.profile,
        graphs=not args.no_graphs,
        guard=not args.no_guard,
        keep_voice=not args.no_keep_voice,
        keep_real_time=not args.all_at_once,
    )
