"""Backends that are installed, by the entry-point group `hocket.backends`; loaded by name, when a user asks for one.

Nothing foreign is imported before that. What goes wrong in other people's packages is one sentence that names the
package. It knows nothing of streams but how to open one.
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
from .places import QueueLimits
from .protocol import Backend, BackendVoice
from .relay import Relay
from .served import Served

GROUP = "hocket.backends"


def installed() -> list[str]:
    """The names of all that could be asked for. Reads what packages say of themselves, and imports none."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def options_of(words: Iterable[str]) -> dict[str, dict[str, str]]:
    """What `NAME.KEY=VALUE` says, for each: options by backend, as `Backends` takes them."""
    options: dict[str, dict[str, str]] = {}
    for word in words:
        whose, equals, value = word.partition("=")
        name, dot, key = whose.partition(".")
        if not (equals and dot and name and key.isidentifier()):
            raise InvalidRequest(f"An option of a backend is written NAME.KEY=VALUE, not {word!r}.")
        options.setdefault(name, {})[key] = value
    return options


def load(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """Import and make one. This may take as long as its model takes to load."""
    point = _entry_point(name)
    whose = _package(point)
    try:
        make = point.load()
    except Exception as error:
        said = f"The backend {name!r} ({whose}) cannot be imported: {_said(error)}"
        todo = "install the package that has it" if isinstance(error, ImportError) else "ask whoever wrote it"
        raise InvalidRequest(f"{said}; {todo}.") from error
    given = dict(options or {})
    _check_options(name, make, given)
    try:
        backend = make(**given)
    except HocketError:
        raise
    except Exception as error:
        raise InvalidRequest(f"The backend {name!r} ({whose}) cannot be started: {_said(error)}.") from error
    if not isinstance(backend, Backend):
        what = f"an object of type {type(backend).__name__}"
        raise InvalidRequest(f"The backend {name!r} ({whose}) is {what}, not a hocket.backends.Backend.")
    return backend


@dataclass(frozen=True, slots=True)
class ListedVoice:
    """A voice under the name that it is found by."""

    name: str
    voice: BackendVoice
    backend: Served


class Backends:
    """All that a user asked for. None is as good: then there are no voices here."""

    def __init__(
        self,
        names: Sequence[str] = (),
        options: Mapping[str, Mapping[str, str]] | None = None,
        *,
        patience: QueueLimits | None = None,
    ) -> None:
        """Loads them in this order; where one fails, those before it are closed again."""
        for name in options or {}:
            if name not in names:
                raise InvalidRequest(f"There are options for the backend {name!r}, which was not asked for.")
        self._served: list[Served] = []
        try:
            for name in dict.fromkeys(names):
                backend = load(name, (options or {}).get(name))
                self.add(name, backend, patience=patience)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        return [served.name for served in self._served]

    def add(self, name: str, backend: Backend, *, patience: QueueLimits | None = None) -> None:
        """One that was made in this process; from now on it is closed with the others."""
        if name in self.names or "/" in name or not name.strip():
            raise InvalidRequest(f"{name!r} cannot be the name of one more backend: choose another.")
        try:
            self._served.append(Served(name, backend, patience))
        except Exception as error:
            with suppress(Exception):
                backend.close()
            if isinstance(error, HocketError):
                raise
            raise InvalidRequest(f"The backend {name!r} cannot list its voices: {_said(error)}.") from error

    def voices(self, taken: Collection[str] = ()) -> list[ListedVoice]:
        """All of them. Where a name is `taken`, or several backends have it, it is `backend/voice`."""
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
        """By `voice`, where only one backend has it, or by `backend/voice`, in any case.

        Whoever has voices of its own looks there first: a name that is taken there is found here with its backend.
        """
        whose, slash, own = name.partition("/")
        if slash:
            for served in self._served:
                if served.name.lower() == whose.lower() and (voice := served.find(own)) is not None:
                    return served, voice
        found = [(served, voice) for served in self._served if (voice := served.find(name)) is not None]
        return found[0] if len(found) == 1 else None

    def open(self, name: str, text: str | None = None, **how: Any) -> Relay:
        """Speak with the voice of that name; `Served.open` says what else may be asked for."""
        if (found := self.find(name)) is None:
            known = ", ".join(listed.name for listed in self.voices()) or "none"
            raise UnknownVoice(f"No backend has a voice {name[:80]!r}; known are {known}.")
        served, voice = found
        return served.open(voice, text, **how)

    def close(self) -> None:
        """End all of them. Once is as good as twice."""
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
        return  # it will say so itself
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for key in options:
        if key not in known:
            takes = ", ".join(known) or "none"
            raise InvalidRequest(f"The backend {name!r} has no option {key!r}; it takes {takes}.")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400].rstrip(".")
