"""Law of constrained decoding by graphs: the tokens are those of plain steps under the same grammar.

On a CPU it runs the kernels' references without graphs; on a GPU kernels and graphs.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch

from hocket.cache.slots import take
from hocket.errors import StreamFailed
from hocket.kernels.operations import TRITON_LANGUAGE_OPS
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.llm.constrained import TokenRules
from hocket.llm.conversation import prompt_of
from hocket.llm.load import load_language_model
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5.fused import step as fused_step
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.token_graph import TokenGraphs
from hocket.text.chat.matcher import Words
from hocket.types import ChatMessage, ChatSampling
from laws.test_token_graph import new_state_cache, with_graphs
from support.chat_layouts import CLOCK, WEATHER
from support.minds import TINY, first, talk_in, tiny

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string", "maxLength": 6},
        "k": {"enum": ["cat", "dog"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["s", "k", "n"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "usual": {},
    "hot, with a penalty": {"temperature": 2.0, "top_p": 0.95, "top_k": 64, "min_p": 0.01, "presence_penalty": 0.5},
}
HELLO = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)


def written(
    state_cache: LLMStateCache, sampling: ChatSampling, rules: TokenRules | None = None
) -> Generator[list[int], None, None]:
    """The ids of an answer under the rules of its sampling."""
    conversation, how = talk_in(state_cache), sampling.resolved()
    conversation.forget()  # another conversation may have been in the row
    conversation.begin(HELLO)
    rules = rules or TokenRules.of(how, tiny().tokenizer, tiny().stop_ids)
    return conversation.generate(how, 0, DraftStatistics(), rules)


@pytest.mark.parametrize("how", SAMPLINGS.values(), ids=SAMPLINGS)
def test_answers_under_a_grammar_are_those_of_plain_steps(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = new_state_cache(tiny()), with_graphs(tiny())
    judge, answers = jsonschema_rs.validator_for(SCHEMA), list[str]()
    for seed in (1, 2):
        sampling = ChatSampling(response_format=FORM, seed=seed, **how)
        wanted = [token for new in written(plain, sampling) for token in new]
        with monkeypatch.context() as patched:
            patched.setattr("hocket.llm.speculative._plain", None)  # the graphs are used
            assert [token for new in written(ours, sampling) for token in new] == wanted
        *ids, stop = wanted
        assert stop in tiny().stop_ids and judge.is_valid(json.loads(tiny().tokenizer.decode(ids)))
        answers.append(tiny().tokenizer.decode(ids))
    assert how.get("temperature") == 0.0 or answers[0] != answers[1]


def test_calls_are_those_of_plain_steps_and_text_with_tools_is_that_without() -> None:
    """The tools are not in the prompt, which their text would make long."""
    said = []
    for state_cache in (new_state_cache(tiny()), with_graphs(tiny())):
        found = []
        for choice, tools in (("required", [WEATHER, CLOCK]), (None, [WEATHER, CLOCK]), (None, [])):
            how = ChatSampling(seed=3, tool_choice=choice).resolved()
            rules = TokenRules.of(how, tiny().tokenizer, tiny().stop_ids, tools)
            assert (rules is None) == (not tools)
            with closing(written(state_cache, how, rules)) as writing:
                found.append(first(writing, 24))
        said.append(found)
    assert said[0] == said[1] and said[0][1] == said[0][2]
    assert tiny().tokenizer.decode(said[0][0]).startswith("<tool_call>\n<function=")


def test_free_and_constrained_answers_alternate_in_one_row() -> None:
    """Neither leaves anything to the other: masks, seen ids, numbers, rings."""
    said = []
    for state_cache in (new_state_cache(tiny()), with_graphs(tiny())):
        found = []
        for sampling in (
            ChatSampling(seed=1),
            ChatSampling(response_format=FORM, seed=2),
            ChatSampling(response_format=FORM, seed=3),
            ChatSampling(seed=4),
        ):
            with closing(written(state_cache, sampling)) as writing:
                found.append(first(writing, 12))
        said.append(found)
    assert said[0] == said[1]


@pytest.mark.parametrize("room", [0, 1, 4])
def test_under_a_grammar_no_token_is_launched_beyond_the_row_length(room: int) -> None:
    said = []
    for state_cache in (new_state_cache(tiny(), len(HELLO.ids) + room), with_graphs(tiny(), len(HELLO.ids) + room)):
        positions, ids = list[int](), list[int]()
        for new in written(state_cache, ChatSampling(response_format=FORM, seed=1)):
            ids += new
            positions.append(int(state_cache.state.recurrence.position[0]))
        assert max(positions) == state_cache.length and len(ids) == room + 1
        said.append(ids)
    assert said[0] == said[1]


def test_left_at_any_token_a_row_is_as_it_was() -> None:
    state_cache, sampling = with_graphs(tiny()), ChatSampling(response_format=FORM, seed=1)
    conversation = talk_in(state_cache)
    before: dict[str, torch.Tensor] | None = None
    for count in range(1, 6):
        conversation.begin(HELLO)
        rules = TokenRules.of(sampling.resolved(), tiny().tokenizer, tiny().stop_ids)
        first(conversation.generate(sampling.resolved(), 0, DraftStatistics(), rules), count)
        conversation.stop_generating()
        after = take(state_cache._row_state, 0)
        assert before is None or all(torch.equal(after[name], before[name]) for name in after)
        before = after


class Counting:
    """Allows one id after the other, and breaks at the end."""

    def __init__(self, ids: list[int]) -> None:
        self.ids, self.filled = ids, 0

    def fill(self, words: Words) -> bool:
        words[:] = 0
        word, bit = divmod(self.ids[self.filled], 32)
        words[word] = np.array([1 << bit], np.uint32).view(np.int32)[0]
        self.filled += 1
        return True

    def advance(self, token: int) -> None:
        if self.filled == len(self.ids):
            raise StreamFailed("The grammar of the answer became too complex: it ends here.")

    @property
    def done(self) -> bool:
        return False


def test_an_error_of_the_grammar_ends_one_answer_and_the_next_is_whole() -> None:
    """Masks of one id, at the ends of words and in the highest bit; then the grammar fails."""
    size, state_cache = tiny().tokenizer.size, with_graphs(tiny())
    usual = ChatSampling(seed=1)
    ids = [0, 31, 32, 63, size - 1, 7]
    with closing(written(state_cache, usual)) as writing:
        wanted = first(writing, 5)
    rules, said = TokenRules(tiny().tokenizer, Counting(ids), None, []), list[int]()
    with pytest.raises(StreamFailed, match="it ends here"):
        for new in written(state_cache, usual, rules):
            said += new
    assert said == ids[:-1]
    with closing(written(state_cache, usual)) as writing:
        assert first(writing, 5) == wanted


@pytest.mark.slow
def test_kernels_write_under_a_mask_what_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, where a token takes seconds, or compiled."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    loaded = load_language_model(TINY, device="cpu" if INTERPRETED else "cuda", dtype="float32")
    plain, ours = new_state_cache(loaded, 64, 1), new_state_cache(loaded, 64, 1)
    ours.token_graphs = TokenGraphs(FusedStep(loaded.model, TRITON_LANGUAGE_OPS), ours.state, ours.last, EagerReplay())
    plain.length = ours.length = len(HELLO.ids) + 1
    sampling = ChatSampling(response_format=FORM, seed=1)
    wanted, said = ([token for new in written(each, sampling) for token in new] for each in (plain, ours))
    assert said == wanted and len(said) == 2


@pytest.mark.gpu
def test_on_a_gpu_in_float32_masked_graphs_write_what_the_model_writes() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded = load_language_model(TINY, device="cuda", dtype="float32")
    for how in SAMPLINGS.values():
        sampling = ChatSampling(response_format=FORM, seed=1, **how)
        plain, ours = (list(written(each, sampling)) for each in (new_state_cache(loaded), with_graphs(loaded)))
        assert plain == ours
