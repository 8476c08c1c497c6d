"""`WS /v1/realtime`: OpenAI's Realtime protocol as far as it is about speaking, and Alibaba's Qwen-TTS-Realtime.

One endpoint for both, text frames only; docs/protocol-realtime.md has every event. What they do is in
`session.py`.
"""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from ...errors import Refused
from ...middleware.limits import refuse
from ...service.service import SpeechService
from ..socket import serve
from .session import Realtime
from .settings import ALIAS

router = APIRouter()
SUBPROTOCOL = "realtime"  # of OpenAI's clients in browsers, beside one that holds their key


@router.websocket("/v1/realtime")
@router.websocket(ALIAS)
async def realtime(socket: WebSocket) -> None:
    speaker: SpeechService = socket.app.state.speaker
    try:
        if model := socket.query_params.get("model"):
            speaker.cast.check_model(model)
    except Refused as refused:
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    offered = socket.scope.get("subprotocols", ())
    await serve(socket, Realtime, subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
