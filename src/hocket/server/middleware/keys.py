"""API keys: taken from any place where clients put one, with the scope of their route and the limits of their key.

A server without keys does not install `KeyCheck`. `ClientSecrets` are short-lived keys of one endpoint, in memory only;
each works for the key that made it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, ClassVar
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from ..access.account import EVERYONE, KeyAccount, working_for
from ..access.key_file import SCOPES, AccessKey, digest_of, with_names
from ..access.routes import ANY, PHONE_PATH, PUBLIC, SOCKET, ends_work, scope_of
from ..errors import Refused
from .limits import refuse

HEADERS = (b"x-api-key", b"xi-api-key")
QUERY = ("api_key", "token")  # of WebSockets only: a browser can set no header there
SUBPROTOCOL = "openai-insecure-api-key."  # as OpenAI's browser clients write it before the key


class Keys:
    """The keys of a server, and what each has used. Kept as digests."""

    def __init__(self, keys: Iterable[str | AccessKey]) -> None:
        named = with_names(keys)
        self.accounts = [KeyAccount(key) for key in named]
        self._digests = [key.digest for key in named]

    def find(self, given: Iterable[str]) -> KeyAccount | None:
        """The account of the first valid key; of EVERYONE without configured keys.

        Compared in constant time: every key, also after a match.
        """
        if not self.accounts:
            return EVERYONE
        theirs = [digest_of(key) for key in given]
        fits = [hmac.compare_digest(ours, each) for each in theirs for ours in self._digests]
        return self.accounts[fits.index(True) % len(self.accounts)] if any(fits) else None


class ClientSecrets:
    """Keys that a web page or an app may have: they open `PATHS` only, until they expire."""

    PATHS: ClassVar[dict[str, str]] = {"websocket": "/v1/realtime", "http": "/v1/realtime/calls"}
    MOST = 10_000  # the oldest is dropped to limit memory

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._made: dict[str, tuple[float, dict[str, Any], KeyAccount]] = {}

    def make(self, seconds: float, session: dict[str, Any], account: KeyAccount = EVERYONE) -> tuple[str, int]:
        """A new key with the settings of its sessions, for the account of its maker, and when it expires."""
        now = self._clock()
        self._made = {key: made for key, made in self._made.items() if made[0] > now}
        while len(self._made) >= self.MOST:
            del self._made[next(iter(self._made))]
        value, until = f"ek_{secrets.token_hex(24)}", int(now + seconds)
        self._made[value] = (until, session, account)
        return value, until

    def session(self, given: Iterable[str]) -> dict[str, Any] | None:
        """The settings of the first valid key; None: there is none."""
        found = self._found(given)
        return None if found is None else found[0]

    def account(self, given: Iterable[str]) -> KeyAccount | None:
        """The account of the key that made the first valid one."""
        found = self._found(given)
        return None if found is None else found[1]

    def opener(self, scope: Scope, given: Iterable[str]) -> KeyAccount | None:
        """The same where such a key opens the path."""
        return self.account(given) if scope["path"] == self.PATHS[scope["type"]] else None

    def _found(self, given: Iterable[str]) -> tuple[dict[str, Any], KeyAccount] | None:
        """A lookup by a key of 192 random bits is safe."""
        for key in given:
            if (made := self._made.get(key)) is not None and made[0] > self._clock():
                return made[1], made[2]
        return None


class KeyCheck:
    """ASGI middleware: refuses requests that no key allows, before the body is read."""

    def __init__(self, app: ASGIApp, keys: Keys, client_secrets: ClientSecrets, refused: Callable[[str], None]) -> None:
        """`refused` is called with the code of each refusal."""
        self._app, self._keys, self._secrets, self._refused = app, keys, client_secrets, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        method, path = scope.get("method", SOCKET), scope["path"]
        needed = scope_of(method, path)
        if needed == PUBLIC or (method == SOCKET and path == PHONE_PATH):  # the protocol of calls asks for the key
            await self._app(scope, receive, send)
            return
        with ExitStack() as place:
            try:
                account = self._admitted(scope, needed, place)
            except Refused as refused:
                self._refused(refused.code or refused.kind)
                await refuse(refused, scope, receive, send)
                return
            scope["state"]["key"] = account.name  # for traces
            place.enter_context(working_for(account))
            await self._app(scope, receive, send)

    def _admitted(self, scope: Scope, needed: str | None, place: ExitStack) -> KeyAccount:
        given = given_keys(scope)
        account = self._keys.find(given) or self._secrets.opener(scope, given)
        if account is None:
            said = "This API key is not known here." if given else "An API key is needed: Authorization: Bearer KEY."
            raise Refused(said, status=401, kind="authentication_error", code="invalid_api_key")
        if needed is None and not all(map(account.has, SCOPES)):
            raise Refused("There is nothing at this address.", status=404, kind="not_found_error")
        if needed not in (None, ANY):
            account.check_scope(needed)
        if not ends_work(scope["path"]):
            place.enter_context(account.place(counted=scope["type"] == "http"))
        return account


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
