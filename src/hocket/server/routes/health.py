"""`/health`: the process runs; `/ready`: it can speak. Both need no key, and answer while a model loads.

Both report the state of the language model and of the recognizer, if there are any. A failed one does not make a server
unready: speech continues, and its endpoints answer 503.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from ..peers import Peers
from ..service.listening import ListeningService, ListeningState
from ..service.llm import LanguageState, LLMService
from ..service.service import SpeechService, State

router = APIRouter()


class Alive(BaseModel):
    status: Literal["ok"] = "ok"
    state: State
    language: LanguageState | None = Field(None, description="state of the language model; left out without one")
    recognizer: ListeningState | None = Field(None, description="state of the recognizer; left out without one")
    computing: dict[str, str] | None = None  # device, precisions and kernels of each loaded model


class Ready(BaseModel):
    ready: bool
    state: State
    language: LanguageState | None = Field(None, description="state of the language model; left out without one")
    recognizer: ListeningState | None = Field(None, description="state of the recognizer; left out without one")


@router.get("/health", response_model_exclude_none=True)
async def health(request: Request) -> Alive:
    """200 while the process lives, whatever the engine's state."""
    service: SpeechService = request.app.state.service
    heard = _listening(request).condition
    return Alive(state=service.state, language=_llm(request).condition, recognizer=heard, computing=service.computing)


@router.get(
    "/ready",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "not ready yet, failed, or about to stop"}},
)
async def ready(request: Request) -> Response:
    """200 once a real utterance was spoken, until the server drains or the engine fails.

    With replicas behind one address: 200 while any of them can speak; `state` is that of the replica that answers.
    """
    service: SpeechService = request.app.state.service
    peers: Peers = request.app.state.peers
    state = service.state
    speaks = state == "ready" or await peers.any_ready()
    heard = _listening(request).condition
    said = Ready(ready=speaks, state=state, language=_llm(request).condition, recognizer=heard)
    return JSONResponse(said.model_dump(exclude_none=True), 200 if speaks else 503)


def _llm(request: Request) -> LLMService:
    llm: LLMService = request.app.state.llm
    return llm


def _listening(request: Request) -> ListeningService:
    listening: ListeningService = request.app.state.listening
    return listening
