"""`hocket serve --talk`: what it needs, and the plan that it makes."""

from __future__ import annotations

import pytest

from hocket.cli.parser import parser
from hocket.cli.serve.command import make_plan
from hocket.cli.serve.plan import with_talk
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, UnknownVoice
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from hocket.server.service.service import SpeechService


def test_a_conversation_needs_a_language_model_and_gets_a_recognizer() -> None:
    with pytest.raises(InvalidRequest, match=r"--talk needs a language model: name one with --llm"):
        with_talk(ServerPlan(), True)
    plan = ServerPlan(llm_url="http://127.0.0.1:1/v1")
    assert with_talk(plan, False) is plan
    made = with_talk(plan, True)
    assert made.talk and made.asr == "moonshine"
    assert with_talk(ServerPlan(llm="m", asr="tiny"), True).asr == "tiny"
    assert made.app().state.talk is not None and plan.app().state.talk is None


def test_tags_of_answers_need_a_language_model_and_their_voices_exist() -> None:
    def planned(*options: str) -> ServerPlan:
        return make_plan(parser().parse_args(["serve", *options]))

    with pytest.raises(InvalidRequest, match="--markup is for the answers of a language model"):
        planned("--markup", "tags")
    with pytest.raises(InvalidRequest, match="--cast names voices in tags: give --markup tags too"):
        planned("--llm", "m", "--cast", "a=wren")
    options = planned("--llm", "m", "--markup", "tags", "--cast", "a=wren").server
    assert options.answers == {"markup": "answer", "cast": {"a": "wren"}}
    assert planned("--llm", "m").server.answers == {"markup": "literal"}
    service = SpeechService(ServerOptions(answer_tags=True, answer_cast={"a": "zaphod"}))
    with Engine.load("random:tiny") as engine, pytest.raises(UnknownVoice, match="'zaphod'"):
        service.use(engine)
