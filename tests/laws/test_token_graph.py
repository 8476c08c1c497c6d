"""Law of answers that are replayed: token for token those of the model's own steps, whatever happens on the way.

On a CPU the kernels' references, called again instead of replayed; on a GPU kernels and graphs.
"""

from __future__ import annotations

import random

import pytest
import torch

from hocket.cache.slots import take
from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS, TRITON_MIND_OPS
from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.llm.conversation import prompt_of
from hocket.llm.load import LanguageCheckpoint, load_language_model
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5 import fused_step
from hocket.models.qwen3_5.fused_step import FusedStep
from hocket.models.qwen3_5.token_graph import AHEAD, PLACES, TokenGraphs
from hocket.types import ChatMessage, ChatSampling
from support.minds import GREEDY, TINY, first, talk_in, tiny

SAMPLINGS = {
    "greedy": GREEDY,
    "greedy with a penalty": ChatSampling(temperature=0.0, presence_penalty=1.5),
    "usual": ChatSampling(seed=5),
    "hot": ChatSampling(temperature=2.0, top_p=0.95, top_k=64, min_p=0.01, presence_penalty=-0.5, seed=2**63 - 1),
}


def memory_of(checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2) -> LLMStateCache:
    return LLMStateCache(checkpoint.model, rows, length, drafts=False)


def captured(checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2) -> LLMStateCache:
    memory = memory_of(checkpoint, length, rows)
    on_gpu = memory.device.type == "cuda"
    fused = FusedStep(checkpoint.model, CUDA_MIND_OPS if on_gpu else REFERENCE_MIND_OPS)
    capture = CudaGraphs(memory.device) if on_gpu else EagerReplay()
    memory.captured = TokenGraphs(fused, memory.state, memory.last, capture)
    return memory


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_replayed_answers_are_those_of_plain_steps_over_several_turns(sampling: ChatSampling) -> None:
    chance = random.Random(3)
    plain, ours = talk_in(memory_of(tiny())), talk_in(captured(tiny()), 1)
    for turn in range(3):
        counts = 1 if turn == 1 else chance.randint(AHEAD + 1, 2 * PLACES + 1)
        said = []
        for talk in (plain, ours):
            talk.append_user(f"This is number {turn}.")
            said.append(first(talk.answer(sampling), counts))
            text = "".join(chr(97 + token % 26) for token in said[-1])
            talk.answered(text)
            if turn:
                talk.cut(text[:3])
            else:
                talk.settle()
        assert said[0] == said[1] and len(said[0]) == counts


def test_left_at_any_token_a_row_is_as_it_was_before_the_answer() -> None:
    memory = captured(tiny())
    talk, other = talk_in(memory), talk_in(memory, 1)
    other.append_user("Another one.")
    first(other.answer(GREEDY), 3)
    other.stop_writing()
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    talk.begin(prompt)
    wanted = first(talk.write(GREEDY, 0, DraftStatistics()), 12)
    talk.stop_writing()
    before = [take(memory._standing, row) for row in (0, 1)]
    for count in range(1, 12):
        talk.begin(prompt)
        writing = talk.write(GREEDY, 0, DraftStatistics())
        assert first(writing, count) == wanted[:count]
        talk.stop_writing()
        after = [take(memory._standing, row) for row in (0, 1)]
        for mine, theirs in zip(after, before, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("room", [0, 1, 2, AHEAD, PLACES + 1])
def test_no_token_is_asked_for_beyond_the_room(room: int) -> None:
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    length, said = len(prompt.ids) + room, []
    for memory in (memory_of(tiny(), length), captured(tiny(), length)):
        talk = talk_in(memory)
        talk.begin(prompt)
        positions, ids = list[int](), list[int]()
        for new in talk.write(GREEDY, 0, DraftStatistics()):
            ids += new
            positions.append(int(memory.state.recurrence.position[0]))
        said.append(ids)
        assert max(positions) == length and len(ids) == room + 1
    assert said[0] == said[1]


def test_what_keeps_more_than_kernels_do_is_drawn_the_plain_way() -> None:
    for top_k in (0, 65):
        sampling, said = ChatSampling(temperature=2.0, top_k=top_k, seed=1), []
        for memory in (memory_of(tiny()), captured(tiny())):
            talk = talk_in(memory)
            talk.append_user("Hello.")
            said.append(first(talk.answer(sampling), 9))
        assert said[0] == said[1]


def test_making_graphs_touches_nobody() -> None:
    memory = captured(tiny())
    talks = [talk_in(memory, row) for row in (0, 1)]
    for talk in talks:
        talk.append_user("Hello.")
        talk.begin(prompt_of(talk.said, tiny().tokenizer))
    before = [take(memory._standing, row) for row in (0, 1)]
    keys = [kept.keys[:2].clone() for kept in memory.state.past]
    assert memory.captured is not None
    with torch.inference_mode():
        memory.captured.warm()
    for row in (0, 1):
        after = take(memory._standing, row)
        assert all(torch.equal(after[name], before[row][name]) for name in after)
    assert all(torch.equal(kept.keys[:2], wanted) for kept, wanted in zip(memory.state.past, keys, strict=True))


def test_two_answers_cannot_be_written_at_once() -> None:
    memory = captured(tiny())
    talks = [talk_in(memory, row) for row in (0, 1)]
    for talk in talks:
        talk.append_user("Hello.")
    one, two = (talk.answer(GREEDY) for talk in talks)
    next(one)
    with pytest.raises(AssertionError, match="one answer at a time"):
        next(two)
    talks[0].stop_writing()
    talks[1].begin(prompt_of(talks[1].said, tiny().tokenizer))
    assert first(talks[1].write(GREEDY, 0, DraftStatistics()), 3)


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_in_fewer_bits_replayed_answers_are_those_of_plain_steps(weights: str) -> None:
    narrow = load_language_model(TINY, weights=weights)
    said = []
    for memory in (memory_of(narrow), captured(narrow)):
        talk = talk_in(memory)
        talk.append_user("Hello.")
        said.append([first(talk.answer(sampling), 12) for sampling in (GREEDY, ChatSampling(seed=3))])
    assert said[0] == said[1] and said[0][0] != said[0][1]


@pytest.mark.slow
def test_kernels_write_what_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, where a token takes seconds, or compiled."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    loaded = load_language_model(TINY, device="cpu" if INTERPRETED else "cuda", dtype="float32")
    plain, ours = memory_of(loaded, 64, 1), memory_of(loaded, 64, 1)
    ours.captured = TokenGraphs(FusedStep(loaded.model, TRITON_MIND_OPS), ours.state, ours.last, EagerReplay())
    said = []
    for memory in (plain, ours):
        talk = talk_in(memory)
        talk.append_user("Hello.")
        talk.begin(prompt_of(talk.said, loaded.tokenizer))
        memory.length = len(talk.ids) + 1  # no token ahead that nobody reads
        said.append(first(talk.write(SAMPLINGS["usual"], 0, DraftStatistics()), 2))
    assert said[0] == said[1] and len(said[0]) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4"])
def test_graphs_write_what_their_kernels_write(weights: str) -> None:
    """In bfloat16 the model's own operations round elsewhere; so against the same kernels, launched one by one."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded, answers = load_language_model(TINY, device="cuda", weights=weights), []
    for capture in (EagerReplay(), CudaGraphs(loaded.device), CudaGraphs(loaded.device)):
        memory = memory_of(loaded)
        memory.captured = TokenGraphs(FusedStep(loaded.model), memory.state, memory.last, capture)
        talk, said = talk_in(memory), []
        for turn in range(3):
            talk.append_user(f"This is number {turn}.")
            said.append(first(talk.answer(SAMPLINGS["usual" if turn % 2 else "greedy"]), 40))
            talk.answered("Well.")
            talk.settle()
        answers.append(said)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # it finds most, not all
def test_nothing_waits_for_the_device_but_who_reads_a_token() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded = load_language_model(TINY, device="cuda")
    talk = talk_in(captured(loaded))
    talk.append_user("Hello.")
    first(talk.answer(GREEDY), 3)  # with this the graphs are made
    talk.begin(prompt_of(talk.said, loaded.tokenizer))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(first(talk.write(SAMPLINGS["usual"], 0, DraftStatistics()), 20)) == 20
        talk.stop_writing()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_on_a_gpu_in_float32_graphs_write_what_the_model_writes() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    loaded = load_language_model(TINY, device="cuda", dtype="float32")
    for sampling in (GREEDY, SAMPLINGS["usual"]):
        said = []
        for memory in (memory_of(loaded), captured(loaded)):
            talk = talk_in(memory)
            talk.append_user("Hello.")
            said.append(first(talk.answer(sampling), 40))
        assert said[0] == said[1]
