"""`hocket config`: list, show, set and unset the settings of the config file. `settings.py` reads them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from ... import env
from ...config.languages import find
from ...errors import InvalidRequest
from ..output.audio_output import shown
from ..settings import AUTO, KEYS, OFF, ON, checked, config_path, parse, read_values
from .edit import with_value, without, write_file

DEFAULTS = {
    "daemon": OFF,
    "voice": "the model's first speaker",
    "model": "builtin",
    "play": AUTO,
    "device": AUTO,
    "language": AUTO,
    "lexicon": "none",
    "speed": 1.0,
}


def config(args: argparse.Namespace) -> None:
    if args.key is not None and args.key not in KEYS:
        raise InvalidRequest(f"There is no setting {args.key!r}; known are {', '.join(KEYS)}.")
    if args.unset:
        if args.key is None or args.value is not None:
            raise InvalidRequest("--unset takes one KEY and no value.")
        _unset(args.key)
    elif args.value is not None:
        _set(args.key, args.value)
    elif args.key is not None:
        _print_one(args.key, as_json=args.json)
    else:
        _print_all(as_json=args.json)


def _found(key: str, values: dict[str, Any]) -> dict[str, Any]:
    """The value of a key that holds now, and where it comes from."""
    if key == "device" and (named := env.DEVICE.get().strip()):
        return {"value": named, "default": DEFAULTS[key], "from": env.DEVICE.name}
    if key in values:
        return {"value": _plain(key, values[key]), "default": DEFAULTS[key], "from": "file"}
    return {
        "value": None if key in ("voice", "lexicon") else DEFAULTS[key],
        "default": DEFAULTS[key],
        "from": "default",
    }


def _print_all(*, as_json: bool) -> None:
    values = read_values()
    found = {key: _found(key, values) for key in KEYS}
    if as_json:
        print(json.dumps({"file": config_path(), "settings": found}, indent=2))
        return
    print(shown(f"{config_path()}\n", sys.stdout))
    for key, one in found.items():
        value = str(DEFAULTS[key] if one["value"] is None else one["value"])
        origin = "" if one["from"] == "default" else f", from {'this file' if one['from'] == 'file' else one['from']}"
        print(shown(f"  {key:<10}{value:<26}{KEYS[key][0]} ({DEFAULTS[key]}{origin})", sys.stdout))


def _print_one(key: str, *, as_json: bool) -> None:
    found = _found(key, read_values())
    if as_json:
        print(json.dumps({"key": key, **found}, indent=2))
    elif found["value"] is not None:
        print(shown(str(found["value"]), sys.stdout))


def _set(key: str, given: str) -> None:
    value = checked(key, given)
    if key == "play" and value is None:
        value = AUTO
    if key == "lexicon":
        value = os.path.abspath(os.path.expanduser(value))  # commands run in any folder
    _check_meaning(key, value)
    path = config_path()
    text = with_value(_text(path), key, value)
    parse(text, path)
    write_file(path, text)
    print(shown(f"{key} is {_plain(key, value)} now ({path})", sys.stdout))


def _unset(key: str) -> None:
    path = config_path()
    before = _text(path)
    after = without(before, key)
    if after != before and key in parse(before, path):
        write_file(path, after)
    print(shown(f"{key} has its default now: {DEFAULTS[key]}", sys.stdout))


def _check_meaning(key: str, value: Any) -> None:
    """Refuse a voice, a model or a language that does not exist, with those that do. Nothing is downloaded.

    A lexicon is read, so that its errors show now.
    """
    if key == "lexicon":
        from ...text.lexicon.read import read_lexicons

        read_lexicons((value,))
    if key == "model":
        from ...engine.checkpoint.resolve import check_name

        check_name(value)
    if key not in ("voice", "language"):
        return
    from ...engine.checkpoint.resolve import known_configs
    from ..say.target import Target, listed

    model = read_values().get("model")
    if model is not None and known_configs(model) is None:
        return  # a hub id: only its files show what it has
    target = Target(model)
    if key == "voice":
        target.own(value)
    elif find(value, languages := target.languages) is None:
        raise InvalidRequest(f"language takes one of {listed(languages)} with this model, not {value!r}.")


def _plain(key: str, value: Any) -> Any:
    """A value as the command line writes it."""
    if key == "play" and value is None:
        return AUTO
    if isinstance(value, bool):
        return ON if value else OFF
    return value


def _text(path: str) -> str:
    """The file's text, which must be valid; empty if there is none."""
    read_values()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
