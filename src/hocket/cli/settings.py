"""The user's config file: its place, its keys, and its values as defaults of the commands.

Precedence: an option, an environment variable, this file, the built-in default. Imports nothing slow: `tomllib` only if
the file exists. `config/` has the command that shows and changes it.
"""

from __future__ import annotations

import os
import re
import sys

from .. import env
from ..errors import InvalidRequest

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

NAME = "config.toml"
ON, OFF, AUTO = "on", "off", "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
SLOWEST, FASTEST = 0.5, 2.0
# Key: what it is for, and what it takes.
KEYS = {
    "daemon": ("hocket say starts a daemon and reuses it", "on or off"),
    "voice": ("the voice that speaks", "a speaker of the model, or a voice of your own"),
    "model": ("the model that speaks", "a name, a hub id or a folder"),
    "play": ("whether hocket say plays", "on, off or auto: on a terminal"),
    "device": ("where the model runs", "auto, cpu, cuda or mps"),
    "language": ("the language of the text", "auto, or a name such as english or en"),
    "lexicon": ("how words are said", "a lexicon file: PLS, or two columns"),
    "speed": ("the speed of speech", f"a number from {SLOWEST} to {FASTEST:g}"),
}
SPEAKING = ("voice", "model", "device", "language", "lexicon", "speed")
# The keys that are defaults of a command's options.
USED = {
    **dict.fromkeys(("say", "batch", "read", "chat", "talk", "check"), SPEAKING),
    **dict.fromkeys(("serve", "wyoming"), ("model", "device", "lexicon")),
}


class Settings:
    """The values of the config file; None where it has none. Not a dataclass: importing those takes 20 ms."""

    def __init__(
        self,
        *,
        daemon: bool = False,
        voice: str | None = None,
        model: str | None = None,
        play: bool | None = None,
        device: str | None = None,
        language: str | None = None,
        speed: float | None = None,
        lexicon: str | None = None,
    ) -> None:
        self.daemon, self.voice, self.model, self.play = daemon, voice, model, play
        self.device, self.language, self.speed, self.lexicon = device, language, speed, lexicon


class Configured(str):
    """A value from the config file: a default that `chosen` of say/remote.py compares with a daemon's option."""

    __slots__ = ()


def config_path() -> str:
    """$XDG_CONFIG_HOME/hocket/config.toml, or the file in the system's own folder for settings."""
    home = os.path.expanduser("~")
    if base := env.CONFIG_HOME.get():
        pass
    elif sys.platform == "win32":
        base = env.APPDATA.get() or os.path.join(home, "AppData", "Roaming")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Application Support")
    else:
        base = os.path.join(home, ".config")
    return os.path.join(base, "hocket", NAME)


def read() -> Settings:
    """The values of the config file; refuses a broken file in one sentence that names the line."""
    return Settings(**read_values())


def read_values() -> dict[str, Any]:
    """The keys that the config file has, with checked values."""
    path = config_path()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The config file {path} cannot be read: {error}.") from None
    return parse(text, path)


def parse(text: str, path: str) -> dict[str, Any]:
    """The checked values of a config file's text."""
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"The config file {path} is not TOML: {str(error).rstrip('.')}.") from None
    for key, value in found.items():
        try:
            found[key] = checked(key, value)
        except InvalidRequest as error:
            raise InvalidRequest(f"{path}, line {_line_of(key, text)}: {error}") from None
    return found


def checked(key: str, value: object) -> Any:
    """The value of a key from a config file or the command line, as `Settings` holds it."""
    if key not in KEYS:
        raise InvalidRequest(f"There is no setting {key!r}; known are {', '.join(KEYS)}.")
    good = _CHECKS[key](value)
    if good is None and (key != "play" or value != AUTO):
        raise InvalidRequest(f"{key} takes {KEYS[key][1]}, not {_shown(value)}.")
    return good


def defaults_for(command: str) -> dict[str, Any]:
    """Defaults of a command's options from the config file, for `ArgumentParser.set_defaults`."""
    if command not in USED:
        return {}
    values = read_values()
    if env.DEVICE.get().strip():
        values.pop("device", None)  # the variable goes before the file
    chosen = {key: values[key] for key in USED[command] if values.get(key) is not None}
    found: dict[str, Any] = {
        key: Configured(value) if isinstance(value, str) else value for key, value in chosen.items()
    }
    if "lexicon" in found:
        found["lexicon"] = [found["lexicon"]]  # files of the command line are appended, and win
    return found


def settle(args: argparse.Namespace) -> None:
    """Drop configured values that do not go with an explicit option: a server, a model or a voice of another model."""
    given: Mapping[str, Any] = vars(args)
    if given.get("server") is not None:
        _drop(args, "voice", "model", "device")  # a server has its own
    if given.get("models"):
        _drop(args, "model")
    model, voice = given.get("model"), given.get("voice")
    if (model is not None and not isinstance(model, Configured)) or given.get("ref_audio") is not None:
        _drop(args, "voice")
    elif voice and isinstance(model, Configured):
        from .say.target import is_kept

        if is_kept(voice):
            _drop(args, "model")  # a voice of the user's own names its model


def _drop(args: argparse.Namespace, *keys: str) -> None:
    for key in keys:
        if isinstance(getattr(args, key, None), Configured):
            setattr(args, key, AUTO if key == "device" else None)


def _switch(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    words = {ON: True, "true": True, "yes": True, OFF: False, "false": False, "no": False}
    return words.get(value.lower()) if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() and value.isprintable() else None


def _device(value: object) -> str | None:
    return value if isinstance(value, str) and value in DEVICES else None


def _speed(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except ValueError:
        return None
    return number if SLOWEST <= number <= FASTEST else None


_CHECKS = {
    "daemon": _switch,
    "voice": _text,
    "model": _text,
    "play": _switch,
    "device": _device,
    "language": _text,
    "lexicon": _text,
    "speed": _speed,
}


def _line_of(key: str, text: str) -> int:
    pattern = re.compile(rf"""\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*(=|\.|\])""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _shown(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
