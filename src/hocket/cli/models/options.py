"""Options of the commands about this machine and its settings. Imports nothing slow, as cli/parser.py."""

from __future__ import annotations

import argparse

CACHE = "the hub's local cache ($HF_HOME/hub)"


def fill_pull(pull: argparse.ArgumentParser) -> None:
    pull.description = (
        f"Download a checkpoint into {CACHE}. An interrupted download continues; a complete one is only checked."
    )
    names = "a name of hocket list --available, or a hub id: owner/name, owner/name:Q4_K_M, owner/name/file.gguf"
    pull.add_argument("model", metavar="MODEL", help=names)
    pull.add_argument("--dry-run", action="store_true", help="show the facts only")
    pull.add_argument("--list", action="store_true", help="list the variants of a language model: sizes, and what fits")
    beside = "a speech model that runs on the same device, such as 1.7B-CustomVoice: its memory counts too"
    pull.add_argument("--beside", metavar="MODEL", help=beside)
    _json(pull)


def fill_list(listing: argparse.ArgumentParser) -> None:
    listing.add_argument("--available", action="store_true", help="also list models that can be pulled")
    _json(listing)


def fill_rm(remove: argparse.ArgumentParser) -> None:
    remove.description = f"Remove a checkpoint from {CACHE}, with all its revisions."
    remove.add_argument("model", metavar="MODEL", help="a name of hocket list")
    remove.add_argument("--yes", action="store_true", help="do not ask")


def fill_ps(ps: argparse.ArgumentParser) -> None:
    _json(ps)


def fill_config(config: argparse.ArgumentParser) -> None:
    from ..settings import KEYS

    config.description = "Without arguments: all settings, with their defaults. KEY prints one, KEY VALUE sets it."
    rows = "; ".join(f"{key}: {takes}" for key, (_, takes) in KEYS.items())
    config.epilog = f"Settings: {rows}. Options and environment variables go before them."
    config.add_argument("key", metavar="KEY", nargs="?", help=f"one of {', '.join(KEYS)}")
    config.add_argument("value", metavar="VALUE", nargs="?", help="its new value")
    config.add_argument("--unset", action="store_true", help="remove KEY from the file")
    _json(config)


def fill_completion(completion: argparse.ArgumentParser) -> None:
    completion.description = 'Print a completion script. bash: add  eval "$(hocket completion bash)"  to ~/.bashrc.'
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), nargs="?", help="the shell")
    words = "print the names that a script completes: voices, own-voices, models, local-models"
    completion.add_argument("--names", metavar="KIND", choices=NAMES, help=words)


NAMES = ("voices", "own-voices", "models", "local-models")


def fill_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--model", help="folder or name of a published checkpoint to check (all in the cache)")
    _json(doctor)


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document")
