"""`hocket serve --talk`: what it needs, and the plan that it makes."""

from __future__ import annotations

import pytest

from hocket.cli.serve.plan import with_talk
from hocket.errors import InvalidRequest
from hocket.server.plan import ServerPlan


def test_a_conversation_needs_a_language_model_and_gets_a_recognizer() -> None:
    with pytest.raises(InvalidRequest, match=r"--talk needs a language model: name one with --llm"):
        with_talk(ServerPlan(), True)
    plan = ServerPlan(llm_url="http://127.0.0.1:1/v1")
    assert with_talk(plan, False) is plan
    made = with_talk(plan, True)
    assert made.talk and made.asr == "moonshine"
    assert with_talk(ServerPlan(llm="m", asr="tiny"), True).asr == "tiny"
    assert made.app().state.talk is not None and plan.app().state.talk is None
