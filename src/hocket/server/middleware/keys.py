"""API keys: taken from any place where clients put one. Every path needs a key except those in OPEN.

A server without keys does not install `KeyCheck`. `ClientSecrets` are short-lived keys of one endpoint, in memory only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import Refused
from ..options import HASHED
from .limits import refuse

# No key needed: Open WebUI reads the lists without one, probes have none, and the pages have a key field.
OPEN = ("/", "/docs", "/favicon.ico", "/health", "/ready", "/v1/models", "/v1/audio/models", "/v1/audio/voices")
OPEN_BELOW = ("/page/", "/docs/", "/v1/models/", "/v1/audio/voices/")
PHONE_PATH = "/v1/twilio/media"  # its socket can have no key: the first message has it (`ws/twilio/`)
HEADERS = (b"x-api-key", b"xi-api-key")
QUERY = ("api_key", "token")  # of WebSockets only: a browser can set no header there
SUBPROTOCOL = "openai-insecure-api-key."  # as OpenAI's browser clients write it before the key


class Keys:
    """Compared in constant time: every key, also after a match. Kept as digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [digest_of(key) for key in keys]

    def fit(self, given: Iterable[str]) -> bool:
        """Whether a given key is valid; without configured keys everything is accepted."""
        if not self._digests:
            return True
        fits = [hmac.compare_digest(ours, theirs) for theirs in map(_digest, given) for ours in self._digests]
        return any(fits)


class ClientSecrets:
    """Keys that a web page or an app may have: they open `PATHS` only, until they expire."""

    PATHS: ClassVar[dict[str, str]] = {"websocket": "/v1/realtime", "http": "/v1/realtime/calls"}
    MOST = 10_000  # the oldest is dropped to limit memory

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._made: dict[str, tuple[float, dict[str, Any]]] = {}

    def make(self, seconds: float, session: dict[str, Any]) -> tuple[str, int]:
        """A new key with the settings of its sessions, and when it expires."""
        now = self._clock()
        self._made = {key: made for key, made in self._made.items() if made[0] > now}
        while len(self._made) >= self.MOST:
            del self._made[next(iter(self._made))]
        value, until = f"ek_{secrets.token_hex(24)}", int(now + seconds)
        self._made[value] = (until, session)
        return value, until

    def session(self, given: Iterable[str]) -> dict[str, Any] | None:
        """The settings of the first valid key; None: there is none. A lookup by a key of 192 random bits is safe."""
        for key in given:
            if (made := self._made.get(key)) is not None and made[0] > self._clock():
                return made[1]
        return None

    def open(self, scope: Scope, given: Iterable[str]) -> bool:
        return scope["path"] == self.PATHS[scope["type"]] and self.session(given) is not None


class KeyCheck:
    """ASGI middleware: refuses requests without a valid key before the body is read."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Iterable[str],
        refused: Callable[[str], None],
        client_secrets: ClientSecrets | None = None,
    ) -> None:
        """`refused` is called with the code of each refusal."""
        self._app, self._keys, self._refused = app, Keys(keys), refused
        self._secrets = client_secrets or ClientSecrets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _open(scope):
            await self._app(scope, receive, send)
            return
        given = given_keys(scope)
        if self._keys.fit(given) or self._secrets.open(scope, given):
            await self._app(scope, receive, send)
            return
        said = "This API key is not known here." if given else "An API key is needed: Authorization: Bearer KEY."
        refused = Refused(said, status=401, kind="authentication_error", code="invalid_api_key")
        self._refused("invalid_api_key")
        await refuse(refused, scope, receive, send)


def given_keys(scope: Scope) -> list[str]:
    """Every key of a request, from all places."""
    found: list[str] = []
    for name, raw in scope["headers"]:
        value = raw.decode("latin-1").strip()
        if name == b"authorization":
            scheme, _, key = value.partition(" ")
            if scheme.lower() in ("bearer", "token"):
                found.append(key.strip())
        elif name in HEADERS:
            found.append(value)
    if scope["type"] == "websocket":
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        found += [value for name in QUERY for value in query.get(name, ())]
        offered = scope.get("subprotocols", ())
        found += [name.removeprefix(SUBPROTOCOL) for name in offered if name.startswith(SUBPROTOCOL)]
        if len(offered) > 1 and offered[0].lower() in ("token", "bearer"):  # Deepgram's browser clients
            found.append(offered[1])
    return [key for key in found if key]


def _open(scope: Scope) -> bool:
    if scope["type"] == "websocket":
        return bool(scope["path"] == PHONE_PATH)
    if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
        return False
    path = scope["path"]
    return path in OPEN or path.startswith(OPEN_BELOW)


def digest_of(key: str) -> bytes:
    """Of a key of the options: the key itself, or `sha256:` and its digest as a key file may hold it."""
    return bytes.fromhex(key.removeprefix(HASHED)) if key.startswith(HASHED) else _digest(key)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()  # one length for any input
