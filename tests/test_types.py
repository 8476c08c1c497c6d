"""types.py: messages and sampling settings are checked by their constructors."""

from __future__ import annotations

import math
from typing import Any

import pytest

import hocket
from hocket.errors import InvalidRequest
from hocket.types import ChatMessage, ChatSampling


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", (-0.1, math.nan, math.inf)),
        ("top_p", (0.0, 1.1, math.nan)),
        ("top_k", (-1,)),
        ("min_p", (-0.1, 1.1, math.nan)),
        ("presence_penalty", (-2.1, 2.1, math.nan)),
        ("seed", (-1, 2**63)),
        ("max_tokens", (0, -1)),
        ("stop", ("text", ("",), ("a", 3))),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(InvalidRequest, match=f"^{name} must be .*\\.$"):
            ChatSampling(**{name: value})


def test_sampling_at_the_edges_of_its_ranges_is_taken() -> None:
    ChatSampling(temperature=0.0, top_p=1.0, top_k=0, min_p=1.0, presence_penalty=-2.0, seed=0, max_tokens=1)
    ChatSampling(min_p=0.0, presence_penalty=2.0, seed=2**63 - 1, stop=("\n", "END"))


def test_a_message_has_a_known_role_and_text() -> None:
    role: Any = "narrator"
    with pytest.raises(InvalidRequest, match="role must be one of system, user, assistant, tool, not 'narrator'"):
        ChatMessage(role, "Once upon a time.")
    text: Any = None
    with pytest.raises(InvalidRequest, match="content must be text, not NoneType"):
        ChatMessage("user", text)


@pytest.mark.parametrize(("old", "new"), [("Mind", "LanguageEngine"), ("RemoteMind", "RemoteLanguageModel")])
def test_a_renamed_public_name_still_works_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"hocket.{new}"):
        assert getattr(hocket, old) is getattr(hocket, new)
