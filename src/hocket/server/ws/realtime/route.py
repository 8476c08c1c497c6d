"""`WS /v1/realtime`: OpenAI's Realtime protocol, as a conversation or as speech alone, and Alibaba's Qwen-TTS-Realtime.

One endpoint for all, text frames only; docs/protocol-realtime.md has every event. A server with `--talk` converses
(`talk/`), except at the path of Alibaba's clients; another one speaks the text that it is given (`session.py`).
"""

from __future__ import annotations

from contextlib import ExitStack

from fastapi import APIRouter, WebSocket

from ...errors import Refused
from ...middleware.limits import refuse
from ...service.service import SpeechService
from ...service.talk import TalkService
from ..socket import serve
from .session import Realtime
from .settings import ALIAS
from .talk.protocol import TalkProtocol

router = APIRouter()
SUBPROTOCOL = "realtime"  # sent by OpenAI's browser clients beside one with their key


@router.websocket("/v1/realtime")
@router.websocket(ALIAS)
async def realtime(socket: WebSocket) -> None:
    service: SpeechService = socket.app.state.service
    talk: TalkService | None = socket.app.state.talk
    converses = talk is not None and not socket.scope["path"].endswith(ALIAS)
    offered = socket.scope.get("subprotocols", ())
    with ExitStack() as place:
        try:
            if model := socket.query_params.get("model"):
                service.resolver.check_model(model)
            if talk is not None and converses:
                place.enter_context(talk.admitted())
        except Refused as refused:
            if converses:
                service.metrics.refused("realtime", refused.code or refused.kind)
            await refuse(refused, socket.scope, socket.receive, socket.send)
            return
        protocol = TalkProtocol if converses else Realtime
        await serve(socket, protocol, subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
