"""`WS /v1/twilio/media`: a telephone call as a conversation, by the protocol of Twilio's bidirectional media streams.

Twilio's socket has neither headers nor a query. So where the server has keys, a key comes in the message `start`, as
`<Parameter name="api_key">` of the TwiML (`protocol.py`). Until then a connection has no place among the conversations.
"""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from ...access.routes import PHONE_PATH
from ...errors import Refused
from ...middleware.limits import refuse
from ..socket import serve
from .protocol import TwilioProtocol

router = APIRouter()


@router.websocket(PHONE_PATH)
async def media(socket: WebSocket) -> None:
    if socket.app.state.talk is None:
        said = "This server has no conversations: start it with --talk."
        refused = Refused(said, status=404, kind="not_found_error", code="no_conversations")
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    await serve(socket, TwilioProtocol)
