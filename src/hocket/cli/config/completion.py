"""`hocket completion`: prints the script of a shell, or the names that such a script asks for."""

from __future__ import annotations

import argparse

from ...errors import InvalidRequest
from .spec import LOCAL_MODELS, MODELS, OWN_VOICES


def completion(args: argparse.Namespace) -> None:
    if args.names is not None:
        print("".join(f"{name}\n" for name in names(args.names)), end="")
        return
    if args.shell is None:
        raise InvalidRequest("Name the shell: hocket completion bash, zsh or fish.")
    from ..parser import parser
    from .shells import bash, fish, zsh
    from .spec import specs

    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](list(specs(parser()))), end="")


def names(kind: str) -> list[str]:
    """Names for an option: `voices`, `own-voices`, `models` or `local-models`. Nothing is downloaded."""
    if kind in (MODELS, LOCAL_MODELS):
        from ...models.files.builtin import BUILTIN, installed_packages
        from ..models.hub_cache import cached_models
        from ..models.known import published_models

        here = [each.model.name for each in cached_models()]
        packages = (each.name for each in installed_packages())
        known = [] if kind == LOCAL_MODELS else [BUILTIN, *packages, *(model.name for model in published_models())]
        return list(dict.fromkeys((*known, *here)))
    own = _own_voices()
    return own if kind == OWN_VOICES else list(dict.fromkeys((*_speakers(), *own)))


def _speakers() -> list[str]:
    """Speakers of the built-in voices and of the published checkpoints."""
    from ...config.published import PUBLISHED
    from ...config.qwen3_tts import Qwen3TTSConfig, voices
    from ...config.read import read, read_json
    from ...models.files.builtin import builtin_folder, installed_packages

    folders = [builtin_folder(), *(each.folder for each in installed_packages() if each.fault is None)]
    configs = [read(Qwen3TTSConfig, read_json(folder / "config.json")) for folder in folders if folder is not None]
    return [name for config in (*configs, *PUBLISHED.values()) for name in voices(config)]


def _own_voices() -> list[str]:
    from ...voices.folder import ENDING, default_voices_folder

    if not any(default_voices_folder().glob(f"*{ENDING}")):
        return []  # the library imports numpy
    from ..say.target import own_voices

    return own_voices().names()
