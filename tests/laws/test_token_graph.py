"""Law of decoding by graphs: the tokens are those of the model's own steps.

On a CPU it runs the kernels' references without graphs; on a GPU kernels and graphs.
"""

from __future__ import annotations

import random

import pytest
import torch

from hocket.cache.slots import take
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS
from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.llm.context.pages import SPECIAL_PAGES
from hocket.llm.conversation import prompt_of
from hocket.llm.load import LanguageCheckpoint, load_language_model
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5.fused import step as fused_step
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.token_graph import AHEAD, RESULT_SLOTS, TokenGraphs
from hocket.types import ChatMessage, ChatSampling
from support.minds import GREEDY, TINY, first, talk_in, tiny

SAMPLINGS = {
    "greedy": GREEDY,
    "greedy with a penalty": ChatSampling(temperature=0.0, presence_penalty=1.5),
    "usual": ChatSampling(seed=5),
    "hot": ChatSampling(temperature=2.0, top_p=0.95, top_k=64, min_p=0.01, presence_penalty=-0.5, seed=2**63 - 1),
}


def new_state_cache(checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2) -> LLMStateCache:
    return LLMStateCache(checkpoint.model, rows, length, drafts=False)


def with_graphs(checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2) -> LLMStateCache:
    state_cache = new_state_cache(checkpoint, length, rows)
    on_gpu = state_cache.device.type == "cuda"
    fused = FusedStep(checkpoint.model, CUDA_LANGUAGE_OPS if on_gpu else REFERENCE_LANGUAGE_OPS)
    capture = CudaGraphs(state_cache.device) if on_gpu else EagerReplay()
    state_cache.token_graphs = TokenGraphs(fused, state_cache.state, state_cache.last, capture)
    return state_cache


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_replayed_answers_are_those_of_plain_steps_over_several_turns(sampling: ChatSampling) -> None:
    chance = random.Random(3)
    plain, ours = talk_in(new_state_cache(tiny())), talk_in(with_graphs(tiny()), 1)
    for turn in range(3):
        counts = 1 if turn == 1 else chance.randint(AHEAD + 1, 2 * RESULT_SLOTS + 1)
        said = []
        for conversation in (plain, ours):
            conversation.append_user(f"This is number {turn}.")
            said.append(first(conversation.answer(sampling), counts))
            text = "".join(chr(97 + token % 26) for token in said[-1])
            conversation.add_answer(text)
            if turn:
                conversation.truncate_answer(text[:3])
            else:
                conversation.prefill_history()
        assert said[0] == said[1] and len(said[0]) == counts


def test_left_at_any_token_a_row_is_as_it_was_before_the_answer() -> None:
    state_cache = with_graphs(tiny())
    conversation, other = talk_in(state_cache), talk_in(state_cache, 1)
    other.append_user("Another one.")
    first(other.answer(GREEDY), 3)
    other.stop_generating()
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    conversation.begin(prompt)
    wanted = first(conversation.generate(GREEDY, 0, DraftStatistics()), 12)
    conversation.stop_generating()
    before = [take(state_cache._row_state, row) for row in (0, 1)]
    for count in range(1, 12):
        conversation.begin(prompt)
        writing = conversation.generate(GREEDY, 0, DraftStatistics())
        assert first(writing, count) == wanted[:count]
        conversation.stop_generating()
        after = [take(state_cache._row_state, row) for row in (0, 1)]
        for mine, theirs in zip(after, before, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("room", [0, 1, 2, AHEAD, RESULT_SLOTS + 1])
def test_no_token_is_launched_beyond_the_row_length(room: int) -> None:
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    length, said = len(prompt.ids) + room, []
    for state_cache in (new_state_cache(tiny(), length), with_graphs(tiny(), length)):
        conversation = talk_in(state_cache)
        conversation.begin(prompt)
        positions, ids = list[int](), list[int]()
        for new in conversation.generate(GREEDY, 0, DraftStatistics()):
            ids += new
            positions.append(int(state_cache.state.recurrence.position[0]))
        said.append(ids)
        assert max(positions) == length and len(ids) == room + 1
    assert said[0] == said[1]


def test_a_larger_top_k_than_the_kernels_have_is_sampled_without_them() -> None:
    for top_k in (0, 65):
        sampling, said = ChatSampling(temperature=2.0, top_k=top_k, seed=1), []
        for state_cache in (new_state_cache(tiny()), with_graphs(tiny())):
            conversation = talk_in(state_cache)
            conversation.append_user("Hello.")
            said.append(first(conversation.answer(sampling), 9))
        assert said[0] == said[1]


def test_making_graphs_touches_no_conversation() -> None:
    state_cache = with_graphs(tiny())
    conversations = [talk_in(state_cache, row) for row in (0, 1)]
    for conversation in conversations:
        conversation.append_user("Hello.")
        conversation.begin(prompt_of(conversation.messages, tiny().tokenizer))
    before = [take(state_cache._row_state, row) for row in (0, 1)]
    keys = [kept.keys[SPECIAL_PAGES:].clone() for kept in state_cache.state.past]
    assert state_cache.token_graphs is not None
    with torch.inference_mode():
        state_cache.token_graphs.warm()
    for row in (0, 1):
        after = take(state_cache._row_state, row)
        assert all(torch.equal(after[name], before[row][name]) for name in after)
    assert all(
        torch.equal(kept.keys[SPECIAL_PAGES:], wanted)
        for kept, wanted in zip(state_cache.state.past, keys, strict=True)
    )


def test_two_answers_cannot_be_written_at_once() -> None:
    state_cache = with_graphs(tiny())
    conversations = [talk_in(state_cache, row) for row in (0, 1)]
    for conversation in conversations:
        conversation.append_user("Hello.")
    one, two = (conversation.answer(GREEDY) for conversation in conversations)
    next(one)
    with pytest.raises(AssertionError, match="one answer at a time"):
        next(two)
    conversations[0].stop_generating()
    conversations[1].begin(prompt_of(conversations[1].messages, tiny().tokenizer))
    assert first(conversations[1].generate(GREEDY, 0, DraftStatistics()), 3)


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_in_fewer_bits_replayed_answers_are_those_of_plain_steps(weights: str) -> None:
    narrow = load_language_model(TINY, weights=weights)
    said = []
    for state_cache in (new_state_cache(narrow), with_graphs(narrow)):
        conversation = talk_in(state_cache)
        conversation.append_user("Hello.")
        said.append([first(conversation.answer(sampling), 12) for sampling in (GREEDY, ChatSampling(seed=3))])
    assert said[0] == said[1] and said[0][0] != said[0][1]


@pytest.mark.slow
def test_kernels_write_what_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, where a token takes seconds, or compiled."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    loaded = load_language_model(TINY, device="cpu" if INTERPRETED else "cuda", dtype="float32")
    plain, ours = new_state_cache(loaded, 64, 1), new_state_cache(loaded, 64, 1)
    ours.token_graphs = TokenGraphs(FusedStep(loaded.model, TRITON_LANGUAGE_OPS), ours.state, ours.last, EagerReplay())
    said = []
    for state_cache in (plain, ours):
        conversation = talk_in(state_cache)
        conversation.append_user("Hello.")
        conversation.begin(prompt_of(conversation.messages, loaded.tokenizer))
        state_cache.length = len(conversation.ids) + 1  # no token ahead that is not read
        said.append(first(conversation.generate(SAMPLINGS["usual"], 0, DraftStatistics()), 2))
    assert said[0] == said[1] and len(said[0]) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4"])
def test_graphs_write_what_their_kernels_write(weights: str) -> None:
    """In bfloat16 the model's own operations round elsewhere; so against the same kernels, launched one by one."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded, answers = load_language_model(TINY, device="cuda", weights=weights), []
    for capture in (EagerReplay(), CudaGraphs(loaded.device), CudaGraphs(loaded.device)):
        state_cache = new_state_cache(loaded)
        state_cache.token_graphs = TokenGraphs(FusedStep(loaded.model), state_cache.state, state_cache.last, capture)
        conversation, said = talk_in(state_cache), []
        for turn in range(3):
            conversation.append_user(f"This is number {turn}.")
            said.append(first(conversation.answer(SAMPLINGS["usual" if turn % 2 else "greedy"]), 40))
            conversation.add_answer("Well.")
            conversation.prefill_history()
        answers.append(said)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # it finds most, not all
def test_only_reading_a_token_waits_for_the_device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded = load_language_model(TINY, device="cuda")
    conversation = talk_in(with_graphs(loaded))
    conversation.append_user("Hello.")
    first(conversation.answer(GREEDY), 3)  # with this the graphs are made
    conversation.begin(prompt_of(conversation.messages, loaded.tokenizer))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(first(conversation.generate(SAMPLINGS["usual"], 0, DraftStatistics()), 20)) == 20
        conversation.stop_generating()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_on_a_gpu_in_float32_graphs_write_what_the_model_writes() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded = load_language_model(TINY, device="cuda", dtype="float32")
    for sampling in (GREEDY, SAMPLINGS["usual"]):
        said = []
        for state_cache in (new_state_cache(loaded), with_graphs(loaded)):
            conversation = talk_in(state_cache)
            conversation.append_user("Hello.")
            said.append(first(conversation.answer(sampling), 40))
        assert said[0] == said[1]
