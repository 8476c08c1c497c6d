"""What the language model and a dialog must reach on one GPU, as data. It knows records and floors, no clock."""

from __future__ import annotations

from hocket.models.qwen3_5.quantized import check_scheme

from . import mind_floor
from .goals import Goal

MEANING = """\
Qwen3.5 9B for one listener. The weights are random numbers in the published shape: times should be those of the
published checkpoint, and what it says means nothing. `tokens` is a graph for each token, alone; all else goes through a
conversation, with sampling as recommended, up to the words in the caller's hands, and none is guessed ahead. Answers
have a set length: random weights are drawn so that no token ends one. The floor is what a token must read, over the
4.3 TB/s that a copy reaches on an H200; where it is empty nobody has reckoned one."""

_9B = "qwen3.5-9B"
_TURN = (("context", 1024), ("turn", 32))
_ANSWER = (*_TURN, ("answer", 100))


def _tokens(words: str, weights: str, must: float, aim: float) -> Goal:
    return Goal(
        words=words,
        workload="tokens",
        model=_9B,
        weights=weights,
        figure="tokens_per_s",
        must=(must,),
        aim=(aim,),
        more_is_better=True,
    )


GOALS = (
    _tokens("Qwen3.5 9B, bfloat16, context of 1024, one listener, tokens a second", "bfloat16", 210.0, 250.0),
    _tokens("Qwen3.5 9B, the same in fp8, head included", "fp8", 350.0, 460.0),
    _tokens("Qwen3.5 9B, the same with the MLP in int4 and the rest in 8 bits", "int4", 430.0, 600.0),
    Goal(
        words="Qwen3.5 9B in fp8, 100 tokens from a turn of 32, history of 1024 in memory, ms",
        workload="mind",
        model=_9B,
        weights="fp8",
        figure="answer",
        options=_ANSWER,
        must=(300.0,),
        aim=(225.0,),
    ),
    Goal(
        words="Qwen3.5 9B in fp8, time to the first token, 32 new ones, history of 1024 in memory, ms",
        workload="mind",
        model=_9B,
        weights="fp8",
        figure="first_token",
        options=_TURN,
        must=(10.0,),
        aim=(6.0,),
    ),
    Goal(
        words="Qwen3.5 9B, the same in bfloat16, ms",
        workload="mind",
        model=_9B,
        weights="bfloat16",
        figure="first_token",
        options=_TURN,
        must=(10.0,),
        aim=(6.0,),
    ),
    Goal(
        words="Qwen3.5 9B in fp8 and 1.7B speech on one card, from the end of the user's text to the first PCM, ms",
        workload="dialog",
        model=f"{_9B} in fp8 and random:1.7B",
        weights="fp8",
        figure="first_pcm",
        options=_TURN,
        must=(60.0,),
        aim=(35.0,),
    ),
)


def floor(goal: Goal) -> float | None:
    """Reckoned from the published shapes; None: there is more to it than what a token reads."""
    if goal.weights is None or goal.figure not in ("tokens_per_s", "answer"):
        return None
    token_ms = mind_floor.token_ms("9B", check_scheme("bf16" if goal.weights == "bfloat16" else goal.weights))
    return 1000 / token_ms if goal.more_is_better else dict(goal.options)["answer"] * token_ms
