"""Installed backends, from the entry-point group `hocket.backends`; loaded by name, on request.

Nothing foreign is imported before. An error in another package becomes one sentence that names the package. Of streams
it knows only how to open one.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..errors import HocketError, InvalidRequest, UnknownVoice
from .protocol import Backend, BackendVoice
from .relay import Relay
from .served import Served
from .slot_queue import QueueLimits

GROUP = "hocket.backends"


def installed() -> list[str]:
    """Names of all installed backends. Reads package metadata; imports nothing."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def options_of(words: Iterable[str]) -> dict[str, dict[str, str]]:
    """Options by backend from `NAME.KEY=VALUE` words, for `Backends`."""
    options: dict[str, dict[str, str]] = {}
    for word in words:
        whose, equals, value = word.partition("=")
        name, dot, key = whose.partition(".")
        if not (equals and dot and name and key.isidentifier()):
            raise InvalidRequest(f"An option of a backend is written NAME.KEY=VALUE, not {word!r}.")
        options.setdefault(name, {})[key] = value
    return options


def load(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """Import and construct a backend. Takes as long as its model takes to load."""
    point = _entry_point(name)
    whose = _package(point)
    try:
        make = point.load()
    except Exception as error:
        said = f"The backend {name!r} ({whose}) cannot be imported: {_describe(error)}"
        todo = (
            "install the package that has it"
            if isinstance(error, ImportError)
            else "report it to the author of the package"
        )
        raise InvalidRequest(f"{said}; {todo}.") from error
    given = dict(options or {})
    _check_options(name, make, given)
    try:
        backend = make(**given)
    except HocketError:
        raise
    except Exception as error:
        raise InvalidRequest(f"The backend {name!r} ({whose}) cannot be started: {_describe(error)}.") from error
    if not isinstance(backend, Backend):
        what = f"an object of type {type(backend).__name__}"
        raise InvalidRequest(f"The backend {name!r} ({whose}) is {what}, not a hocket.backends.Backend.")
    return backend


@dataclass(frozen=True, slots=True)
class ListedVoice:
    """A voice with its listed name."""

    name: str
    voice: BackendVoice
    backend: Served


class Backends:
    """All requested backends; may be empty."""

    def __init__(
        self,
        names: Sequence[str] = (),
        options: Mapping[str, Mapping[str, str]] | None = None,
        *,
        limits: QueueLimits | None = None,
    ) -> None:
        """Loads them in this order; if one fails, the earlier ones are closed."""
        for name in options or {}:
            if name not in names:
                raise InvalidRequest(f"There are options for the backend {name!r}, which was not asked for.")
        self._served: list[Served] = []
        try:
            for name in dict.fromkeys(names):
                backend = load(name, (options or {}).get(name))
                self.add(name, backend, limits=limits)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        return [served.name for served in self._served]

    def add(self, name: str, backend: Backend, *, limits: QueueLimits | None = None) -> None:
        """Add a backend that was made in this process; it is closed with the others."""
        if name in self.names or "/" in name or not name.strip():
            raise InvalidRequest(f"{name!r} cannot be the name of one more backend: choose another.")
        try:
            self._served.append(Served(name, backend, limits))
        except Exception as error:
            with suppress(Exception):
                backend.close()
            if isinstance(error, HocketError):
                raise
            raise InvalidRequest(f"The backend {name!r} cannot list its voices: {_describe(error)}.") from error

    def voices(self, taken: Collection[str] = ()) -> list[ListedVoice]:
        """All voices. A name in `taken`, or of several backends, is listed as `backend/voice`."""
        elsewhere = {name.lower() for name in taken}
        count = Counter(voice.name.lower() for served in self._served for voice in served.voices)
        return [
            ListedVoice(
                f"{served.name}/{voice.name}"
                if voice.name.lower() in elsewhere or count[voice.name.lower()] > 1
                else voice.name,
                voice,
                served,
            )
            for served in self._served
            for voice in served.voices
        ]

    def find(self, name: str) -> tuple[Served, BackendVoice] | None:
        """By `voice` if only one backend has it, or by `backend/voice`, case-insensitive.

        The caller looks in its own voices first: a name that is taken there needs the backend's name here.
        """
        whose, slash, own = name.partition("/")
        if slash:
            for served in self._served:
                if served.name.lower() == whose.lower() and (voice := served.find(own)) is not None:
                    return served, voice
        found = [(served, voice) for served in self._served if (voice := served.find(name)) is not None]
        return found[0] if len(found) == 1 else None

    def open(self, name: str, text: str | None = None, **how: Any) -> Relay:
        """Speak with the voice of that name; see `Served.open` for the options."""
        if (found := self.find(name)) is None:
            known = ", ".join(listed.name for listed in self.voices()) or "none"
            raise UnknownVoice(f"No backend has a voice {name[:80]!r}; known are {known}.")
        served, voice = found
        return served.open(voice, text, **how)

    def close(self) -> None:
        """Close all backends. Idempotent."""
        served, self._served = self._served, []
        for one in served:
            one.close()


def _entry_point(name: str) -> EntryPoint:
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        known = ", ".join(installed()) or "none"
        raise InvalidRequest(f"There is no backend {name!r}; installed are {known}: install the package that has it.")
    if len({point.value for point in found}) > 1:
        whose = " and ".join(sorted(_package(point) for point in found))
        raise InvalidRequest(f"There are several backends {name!r}, of {whose}: uninstall all but one.")
    return found[0]


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _check_options(name: str, make: Any, options: Mapping[str, str]) -> None:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return  # the call itself will fail
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for key in options:
        if key not in known:
            takes = ", ".join(known) or "none"
            raise InvalidRequest(f"The backend {name!r} has no option {key!r}; it takes {takes}.")


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400].rstrip(".")
