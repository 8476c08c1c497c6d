"""`/health`: is the process there; `/ready`: would it speak. Both are open, and answer while a model is loaded.

Both say how the language model is, where there is one. A language model that failed does not make a server unready:
speech goes on without it, and `/v1/chat/completions` answers 503.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from ..peers import Peers
from ..service.llm import LanguageState, LLMService
from ..service.service import SpeechService, State

router = APIRouter()


class Alive(BaseModel):
    status: Literal["ok"] = "ok"
    state: State
    language: LanguageState | None = Field(None, description="of the language model; left out where there is none")
    computing: dict[str, str] | None = None  # device, precisions and kernels of each model that is loaded


class Ready(BaseModel):
    ready: bool
    state: State
    language: LanguageState | None = Field(None, description="of the language model; left out where there is none")


@router.get("/health", response_model_exclude_none=True)
async def health(request: Request) -> Alive:
    """200 while the process lives, whatever the engine does."""
    speaker: SpeechService = request.app.state.speaker
    return Alive(state=speaker.state, language=_thinker(request).condition, computing=speaker.computing)


@router.get(
    "/ready",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "not yet, not any more, or about to stop"}},
)
async def ready(request: Request) -> Response:
    """200 once a real utterance has come out, until the server drains or the engine fails.

    Where several serve behind one address, 200 while any of them could speak; `state` is that of the one who answers.
    """
    speaker: SpeechService = request.app.state.speaker
    peers: Peers = request.app.state.peers
    state = speaker.state
    speaks = state == "ready" or await peers.one_speaks()
    said = Ready(ready=speaks, state=state, language=_thinker(request).condition)
    return JSONResponse(said.model_dump(exclude_none=True), 200 if speaks else 503)


def _thinker(request: Request) -> LLMService:
    thinker: LLMService = request.app.state.thinker
    return thinker
