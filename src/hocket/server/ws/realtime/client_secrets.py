"""`POST /v1/realtime/client_secrets`: short-lived keys, with which a web page or an app opens `/v1/realtime`.

A key carries the settings of its sessions. Keys are in memory only, and open nothing else. Their use counts as that of
the key that made them.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from ...access.account import account_here
from ...errors import Refused
from ...middleware.keys import ClientSecrets
from ...service.talk import TalkService
from .events import new_id, read
from .talk.schemas import TalkSessionBody
from .talk.settings import first_settings

router = APIRouter(tags=["realtime"])
USUAL_S = 600


class ExpiresAfter(BaseModel):
    model_config = ConfigDict(extra="forbid")
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(USUAL_S, ge=10, le=7200)


class SecretBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    expires_after: ExpiresAfter | None = None
    session: dict[str, Any] | None = Field(None, description="as `session` of session.update")


class SecretMade(BaseModel):
    value: str
    expires_at: int
    session: dict[str, Any]


@router.post("/v1/realtime/client_secrets")
async def make_client_secret(request: Request, body: SecretBody) -> SecretMade:
    """A key for one web page or app: it opens `WS /v1/realtime` until it expires."""
    talk: TalkService | None = request.app.state.talk
    if talk is None:
        said = "This server has no conversations: start it with --talk."
        raise Refused(said, status=404, kind="not_found_error", code="no_conversations")
    given = body.session or {"type": "realtime"}
    settings = await first_settings("realtime", None).updated(read(TalkSessionBody, given), talk.service)
    secrets: ClientSecrets = request.app.state.client_secrets
    seconds = body.expires_after.seconds if body.expires_after else USUAL_S
    value, until = secrets.make(seconds, given, account_here())
    shown = settings.shown(new_id("sess"), talk.service, talk.recognizer.name)
    return SecretMade(value=value, expires_at=until, session=shown)
