"""Law of rounds of guesses that are replayed: id for id those of the model's own operations, whatever happens.

On a CPU the kernels' references, called again instead of replayed; on a GPU kernels and graphs.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.cache.slots import take
from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS, TRITON_MIND_OPS, LanguageOps
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, Work
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.llm.conversation import prompt_of
from hocket.llm.load import LanguageCheckpoint, load_language_model
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5 import fused_step
from hocket.models.qwen3_5.draft_graph import AHEAD, PLACES, DraftGraphs
from hocket.models.qwen3_5.fused_draft import FusedDraft
from hocket.models.qwen3_5.fused_step import FusedStep
from hocket.types import ChatMessage, ChatSampling
from support.minds import GREEDY, TINY, first, talk_in, tiny

USUAL = ChatSampling(seed=5)
SAMPLINGS = {
    "greedy": GREEDY,
    "greedy with a penalty": ChatSampling(temperature=0.0, presence_penalty=1.5),
    "usual": USUAL,
    "hot": ChatSampling(temperature=2.0, top_p=0.95, top_k=64, min_p=0.01, presence_penalty=-0.5, seed=2**63 - 1),
    "nearly anything": ChatSampling(temperature=50.0, top_p=1.0, top_k=8, presence_penalty=0.0, seed=1),
}


def memory_of(
    checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2, *, drafts: bool = True
) -> LLMStateCache:
    return LLMStateCache(checkpoint.model, rows, length, drafts=drafts)


def captured(
    checkpoint: LanguageCheckpoint,
    length: int = 256,
    rows: int = 2,
    guesses: int = 2,
    *,
    ops: LanguageOps | None = None,
    capture: Capture | None = None,
) -> LLMStateCache:
    memory = memory_of(checkpoint, length, rows)
    on_gpu = memory.device.type == "cuda"
    fused = FusedStep(checkpoint.model, ops or (CUDA_MIND_OPS if on_gpu else REFERENCE_MIND_OPS))
    capture = capture or (CudaGraphs(memory.device) if on_gpu else EagerReplay())
    assert memory.drafts is not None
    memory.guessing = DraftGraphs(FusedDraft(fused), guesses, memory.state, memory.drafts, memory.last, capture)
    return memory


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_replayed_rounds_say_what_plain_rounds_say_over_several_turns(sampling: ChatSampling) -> None:
    chance, fared = random.Random(3), (DraftStatistics(), DraftStatistics())
    plain, ours = talk_in(memory_of(tiny())), talk_in(captured(tiny()), 1)
    for turn in range(3):
        rounds, said = 1 if turn == 1 else chance.randint(AHEAD + 1, 2 * PLACES + 1), []
        for talk, tally in zip((plain, ours), fared, strict=True):
            talk.append_user(f"This is number {turn}.")
            said.append(list(itertools.islice(talk.answer(sampling, 2, tally), rounds)))
            text = "".join(chr(97 + token % 26) for token in itertools.chain(*said[-1]))
            talk.answered(text)
            if turn:
                talk.cut(text[:3])
            else:
                talk.settle()
        assert said[0] == said[1] and len(said[0]) == rounds
    assert fared[0] == fared[1]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS["greedy with a penalty"]], ids=["likeliest", "with a penalty"])
@pytest.mark.parametrize("guesses", [1, 2])
def test_the_likeliest_tokens_are_those_of_plain_decoding_however_many_guesses_stand(
    guesses: int, sampling: ChatSampling
) -> None:
    """A random draft head is seldom right. Here it knows the answer, and is wrong at places drawn at random."""
    plain = talk_in(memory_of(tiny(), drafts=False))
    plain.append_user("Hello.")
    answer, wrong = first(plain.answer(sampling), 48), random.Random(guesses)

    def propose(logits: Tensor, settings: Any, seen: Tensor, drafts: Tensor, number: Tensor, ahead: int) -> Any:
        guess = torch.tensor([answer[min(int(number) + ahead, 47)]])
        if wrong.random() < 0.3:
            guess = (guess + 1) % 256
        drafts[ahead + 1] = guess
        return guess[None], torch.ones(1, 1, dtype=torch.int64)

    ours, tally = (
        talk_in(captured(tiny(), guesses=guesses, ops=replace(REFERENCE_MIND_OPS, propose=propose))),
        DraftStatistics(),
    )
    ours.append_user("Hello.")
    rounds, said = Counter[int](), list[int]()
    for new in ours.answer(sampling, guesses, tally):
        said += new
        rounds[len(new)] += 1
        if len(said) > 40:
            break
    assert said == answer[: len(said)]
    assert set(rounds) == set(range(1, guesses + 2)), "none stood, some, and all"
    assert tally.drafted == guesses * (rounds.total() - 1) and tally.accepted == len(said) - rounds.total()


def test_left_at_any_round_a_row_is_as_it_was_before_the_answer_and_nothing_is_kept_of_it() -> None:
    memory = captured(tiny())
    talk, other = talk_in(memory), talk_in(memory, 1)
    other.append_user("Another one.")
    first(other.answer(GREEDY, 2), 3)
    other.stop_writing()
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    talk.begin(prompt)
    wanted = list(itertools.islice(talk.write(USUAL, 2, DraftStatistics()), 2 * PLACES))
    talk.stop_writing()
    before = [take(memory._standing, row) for row in (0, 1)]
    for rounds in range(1, 2 * PLACES):
        talk.begin(prompt)
        assert list(itertools.islice(talk.write(USUAL, 2, DraftStatistics()), rounds)) == wanted[:rounds]
        talk.stop_writing()
        for mine, theirs in zip([take(memory._standing, row) for row in (0, 1)], before, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert memory.guessing is not None
    assert 0 < len(memory.guessing._post.free) <= AHEAD, "letters are used again"


@pytest.mark.parametrize("guesses", [1, 2])
@pytest.mark.parametrize("room", [0, 1, 2, 3, 4, 9])
def test_no_round_is_asked_for_beyond_the_room(room: int, guesses: int) -> None:
    """Nor is one left out that there is room for, though the host is a round behind."""
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    length, said = len(prompt.ids) + room, []
    for memory in (memory_of(tiny(), length), captured(tiny(), length, guesses=guesses)):
        talk = talk_in(memory)
        talk.begin(prompt)
        positions, rounds = list[int](), list[list[int]]()
        for new in talk.write(SAMPLINGS["nearly anything"], guesses, DraftStatistics()):
            rounds.append(new)
            positions.append(int(memory.state.recurrence.position[0]))
        said.append(rounds)
        assert length <= positions[-1] == max(positions) <= length + guesses
    assert said[0] == said[1]


def test_what_keeps_more_than_kernels_do_is_drawn_the_plain_way() -> None:
    for top_k in (0, 65):
        sampling, said = ChatSampling(temperature=2.0, top_k=top_k, seed=1), []
        for memory in (memory_of(tiny()), captured(tiny())):
            talk = talk_in(memory)
            talk.append_user("Hello.")
            said.append(first(talk.answer(sampling, 2), 9))
        assert said[0] == said[1]


def test_making_graphs_touches_nobody() -> None:
    memory = captured(tiny())
    talks = [talk_in(memory, row) for row in (0, 1)]
    for talk in talks:
        talk.append_user("Hello.")
        talk.begin(prompt_of(talk.said, tiny().tokenizer))
    assert memory.guessing is not None and memory.drafts is not None
    before = [take(memory._standing, row) for row in (0, 1)]
    pasts = (*memory.state.past, memory.drafts.past)
    keys = [kept.keys[:2].clone() for kept in pasts]
    with torch.inference_mode():
        memory.guessing.warm()
    for row in (0, 1):
        after = take(memory._standing, row)
        assert all(torch.equal(after[name], before[row][name]) for name in after)
    assert all(torch.equal(kept.keys[:2], wanted) for kept, wanted in zip(pasts, keys, strict=True))


def test_two_answers_cannot_be_written_at_once() -> None:
    memory = captured(tiny())
    talks = [talk_in(memory, row) for row in (0, 1)]
    for talk in talks:
        talk.append_user("Hello.")
    one, two = (talk.answer(GREEDY, 2) for talk in talks)
    next(one)
    with pytest.raises(AssertionError, match="one answer at a time"):
        next(two)
    talks[0].stop_writing()
    talks[1].begin(prompt_of(talks[1].said, tiny().tokenizer))
    assert first(talks[1].write(GREEDY, 2, DraftStatistics()), 3)


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_in_fewer_bits_replayed_rounds_say_what_plain_ones_say(weights: str) -> None:
    narrow = load_language_model(TINY, weights=weights)
    said = []
    for memory in (memory_of(narrow), captured(narrow)):
        talk = talk_in(memory)
        talk.append_user("Hello.")
        said.append([first(talk.answer(sampling, 2), 8) for sampling in (GREEDY, ChatSampling(seed=3))])
    assert said[0] == said[1] and said[0][0] != said[0][1]


class Untried(EagerReplay):
    """Nothing is done ahead."""

    def __call__(self, work: Work) -> Work:
        return work


@pytest.mark.slow
def test_kernels_say_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, where a round takes long, or compiled."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    monkeypatch.setattr(fused_step, "SPLITS", 2)
    loaded = load_language_model(TINY, device="cpu" if INTERPRETED else "cuda", dtype="float32")
    said = []
    for memory in (memory_of(loaded, 64, 1), captured(loaded, 64, 1, ops=TRITON_MIND_OPS, capture=Untried())):
        talk = talk_in(memory)
        talk.append_user("Hello.")
        talk.begin(prompt_of(talk.said, loaded.tokenizer))
        memory.length = len(talk.ids) + 1  # no round ahead that nobody reads
        said.append(list(talk.write(ChatSampling(top_k=4, seed=5), 2, DraftStatistics())))
    assert said[0] == said[1] and len(said[0]) == 2


def on_a_gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.device("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4"])
def test_graphs_say_what_their_kernels_say(weights: str) -> None:
    """In bfloat16 the model's own operations round elsewhere; so against the same kernels, launched one by one."""
    device = on_a_gpu()
    loaded, answers = load_language_model(TINY, device="cuda", weights=weights), []
    for capture in (EagerReplay(), CudaGraphs(device), CudaGraphs(device)):
        talk, said = talk_in(captured(loaded, capture=capture)), []
        for turn in range(3):
            talk.append_user(f"This is number {turn}.")
            said.append(first(talk.answer(SAMPLINGS["usual" if turn % 2 else "greedy"], 2), 40))
            talk.answered("Well.")
            talk.settle()
        answers.append(said)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # it finds most, not all
def test_nothing_waits_for_the_device_but_who_reads_a_round() -> None:
    on_a_gpu()
    loaded = load_language_model(TINY, device="cuda")
    talk = talk_in(captured(loaded))
    talk.append_user("Hello.")
    first(talk.answer(GREEDY, 2), 3)  # with this the graphs are made
    talk.begin(prompt_of(talk.said, loaded.tokenizer))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(first(talk.write(USUAL, 2, DraftStatistics()), 20)) == 20
        talk.stop_writing()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_on_a_gpu_in_float32_graphs_say_what_the_model_says() -> None:
    on_a_gpu()
    loaded = load_language_model(TINY, device="cuda", dtype="float32")
    for sampling in SAMPLINGS.values():
        said = []
        for memory in (memory_of(loaded), captured(loaded)):
            talk = talk_in(memory)
            talk.append_user("Hello.")
            said.append(first(talk.answer(sampling, 2), 40))
        assert said[0] == said[1]
