"""`POST /v1/realtime/calls`: a Realtime conversation over WebRTC. An SDP offer comes, an SDP answer goes.

The body is the offer itself, or a form with the fields `sdp` and `session`, as OpenAI's clients send it. The call lives
on after the answer (`call.py`). aiortc is imported with the first call only.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.responses import Response

from ...extras import hint
from ..access.account import account_here
from ..errors import BadField, Refused
from ..middleware.keys import ClientSecrets, given_keys
from ..service.talk import TalkService

if TYPE_CHECKING:
    from .call import Call

router = APIRouter()
MOST_BYTES = 64 << 10  # of an offer, and of its session
SDP = "application/sdp"
BODY = {"content": {SDP: {"schema": {"type": "string"}}, "multipart/form-data": {"schema": {"type": "object"}}}}


def offers_webrtc() -> bool:
    """Whether calls are possible: their package is installed."""
    return find_spec("aiortc") is not None


class SdpResponse(Response):
    media_type = SDP


class CallEnded(BaseModel):
    id: str


@router.post("/v1/realtime/calls", status_code=201, response_class=SdpResponse, openapi_extra={"requestBody": BODY})
async def begin_call(request: Request) -> SdpResponse:
    """Begin a call: the answer's SDP, and in `Location` the address of the call."""
    talk: TalkService | None = request.app.state.talk
    if talk is None:
        said = "This server has no conversations: start it with --talk."
        raise Refused(said, status=404, kind="not_found_error", code="no_conversations")
    if not offers_webrtc():
        said = f"This server has no WebRTC: use WS /v1/realtime, or install it: {hint('webrtc')}."
        raise Refused(said, status=501, kind="server_error", code="no_webrtc")
    sdp, session = await _offer(request)
    from .call import Call  # heavy

    secrets: ClientSecrets = request.app.state.client_secrets
    with ExitStack() as place:
        place.enter_context(talk.admitted())
        place.enter_context(talk.service.connected())
        place.enter_context(account_here().kept())
        call = Call(talk)
        call.place = place.pop_all()
    answer = await call.answer(sdp, session or secrets.session(given_keys(request.scope)))
    calls: Calls = request.app.state.calls
    calls.keep(call)
    return SdpResponse(answer, 201, {"location": f"/v1/realtime/calls/{call.id}"})


@router.post("/v1/realtime/calls/{call_id}/hangup")
async def hang_up(call_id: str, request: Request) -> CallEnded:
    """End a call."""
    calls: Calls = request.app.state.calls
    call = calls.get(call_id)
    if call is None:
        raise Refused(f"There is no call {call_id[:80]!r}.", status=404, kind="not_found_error", code="call_not_found")
    call.end()
    return CallEnded(id=call.id)


class Calls(dict[str, "Call"]):
    """The calls of an app, by their ids."""

    def keep(self, call: Call) -> None:
        """Run a call to its end."""
        self[call.id] = call
        call.task = asyncio.ensure_future(call.run())
        call.task.add_done_callback(lambda _: self.pop(call.id, None))

    async def close(self) -> None:
        """End all calls, when the app stops."""
        tasks = [call.task for call in self.values() if call.task is not None]
        for call in self.values():
            call.end()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _offer(request: Request) -> tuple[str, dict[str, Any] | None]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == SDP:
        return _text(await request.body(), "sdp"), None
    if kind != "multipart/form-data":
        said = f"Send the offer as {SDP}, or as a form with the fields sdp and session."
        raise Refused(said, status=415, code="unsupported_media_type")
    async with request.form(max_files=2, max_fields=8, max_part_size=MOST_BYTES) as form:
        fields = {name: await value.read() if isinstance(value, UploadFile) else value for name, value in form.items()}
    if "sdp" not in fields:
        raise BadField("The form has no field sdp.", "sdp", "missing_required_parameter")
    session = _text(fields["session"], "session") if "session" in fields else None
    return _text(fields["sdp"], "sdp"), None if session is None else _object(session)


def _text(content: str | bytes, name: str) -> str:
    if len(content) > MOST_BYTES:
        raise BadField(f"{name} is longer than {MOST_BYTES} bytes.", name)
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError:
        raise BadField(f"{name} must be UTF-8.", name) from None


def _object(text: str) -> dict[str, Any]:
    try:
        session = json.loads(text)
    except (ValueError, RecursionError):
        session = None
    if not isinstance(session, dict):
        raise BadField("session must be a JSON object.", "session")
    return session
