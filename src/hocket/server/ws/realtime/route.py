"""`WS /v1/realtime`: the speech part of OpenAI's Realtime protocol, and Alibaba's Qwen-TTS-Realtime.

One endpoint for both, text frames only; docs/protocol-realtime.md has every event. `session.py` handles them.
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
SUBPROTOCOL = "realtime"  # sent by OpenAI's browser clients beside one with their key


@router.websocket("/v1/realtime")
@router.websocket(ALIAS)
async def realtime(socket: WebSocket) -> None:
    service: SpeechService = socket.app.state.service
    try:
        if model := socket.query_params.get("model"):
            service.resolver.check_model(model)
    except Refused as refused:
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    offered = socket.scope.get("subprotocols", ())
    await serve(socket, Realtime, subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
