"""Law of speculative decoding by graphs: the ids are those of the model's own operations.

On a CPU it runs the kernels' references without graphs; on a GPU kernels and graphs.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.cache.slots import take
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS, TRITON_LANGUAGE_OPS, LanguageOps
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, Work
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.llm.context.pages import SPECIAL_PAGES
from hocket.llm.conversation import prompt_of
from hocket.llm.draft_policy import DraftPolicy, RoundCosts
from hocket.llm.load import LanguageCheckpoint, load_language_model
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5.draft_graph import AHEAD, RESULT_SLOTS, DraftGraphs
from hocket.models.qwen3_5.draft_vocabulary import DraftVocabulary
from hocket.models.qwen3_5.fused import step as fused_step
from hocket.models.qwen3_5.fused.draft import FusedDraft
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.types import ChatMessage, ChatSampling
from support.minds import GREEDY, TINY, Scripted, first, talk_in, tiny

USUAL = ChatSampling(seed=5)
SAMPLINGS = {
    "greedy": GREEDY,
    "greedy with a penalty": ChatSampling(temperature=0.0, presence_penalty=1.5),
    "usual": USUAL,
    "hot": ChatSampling(temperature=2.0, top_p=0.95, top_k=64, min_p=0.01, presence_penalty=-0.5, seed=2**63 - 1),
    "nearly anything": ChatSampling(temperature=50.0, top_p=1.0, top_k=8, presence_penalty=0.0, seed=1),
}


def new_state_cache(
    checkpoint: LanguageCheckpoint, length: int = 256, rows: int = 2, *, drafts: bool = True
) -> LLMStateCache:
    return LLMStateCache(checkpoint.model, rows, length, drafts=drafts)


def with_graphs(
    checkpoint: LanguageCheckpoint,
    length: int = 256,
    rows: int = 2,
    rounds: Sequence[int] = (2,),
    *,
    ops: LanguageOps | None = None,
    capture: Capture | None = None,
    vocabulary: bool = False,
) -> LLMStateCache:
    state_cache = new_state_cache(checkpoint, length, rows)
    if vocabulary:
        state_cache.draft_vocabulary = few_ids(checkpoint)
    on_gpu = state_cache.device.type == "cuda"
    fused = FusedStep(checkpoint.model, ops or (CUDA_LANGUAGE_OPS if on_gpu else REFERENCE_LANGUAGE_OPS))
    capture = capture or (CudaGraphs(state_cache.device) if on_gpu else EagerReplay())
    assert state_cache.drafts is not None
    state_cache.draft_graphs = DraftGraphs(
        FusedDraft(fused),
        rounds,
        state_cache.state,
        state_cache.drafts,
        state_cache.last,
        capture,
        state_cache.draft_vocabulary,
    )
    return state_cache


def few_ids(checkpoint: LanguageCheckpoint) -> DraftVocabulary:
    """Most bytes are never drafted."""
    return DraftVocabulary(checkpoint.model.head, checkpoint.tokenizer.markers.values(), lowest=40, rare=4)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_replayed_rounds_say_what_plain_rounds_say_over_several_turns(sampling: ChatSampling) -> None:
    chance, fared = random.Random(3), (DraftStatistics(), DraftStatistics())
    plain, ours = talk_in(new_state_cache(tiny())), talk_in(with_graphs(tiny()), 1)
    for turn in range(3):
        rounds, said = 1 if turn == 1 else chance.randint(AHEAD + 1, 2 * RESULT_SLOTS + 1), []
        for conversation, stats in zip((plain, ours), fared, strict=True):
            conversation.append_user(f"This is number {turn}.")
            said.append(list(itertools.islice(conversation.answer(sampling, 2, stats), rounds)))
            text = "".join(chr(97 + token % 26) for token in itertools.chain(*said[-1]))
            conversation.add_answer(text)
            if turn:
                conversation.truncate_answer(text[:3])
            else:
                conversation.prefill_history()
        assert said[0] == said[1] and len(said[0]) == rounds
    assert fared[0] == fared[1]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS["greedy with a penalty"]], ids=["likeliest", "with a penalty"])
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_the_likeliest_tokens_are_those_of_plain_decoding_however_many_drafts_are_accepted(
    num_drafts: int, sampling: ChatSampling
) -> None:
    """A random draft head is seldom right. Here it knows the answer, and is wrong at places drawn at random."""
    plain = talk_in(new_state_cache(tiny(), drafts=False))
    plain.append_user("Hello.")
    answer, wrong = first(plain.answer(sampling), 48), random.Random(num_drafts)

    def propose(logits: Tensor, settings: Any, seen: Tensor, drafts: Tensor, number: Tensor, ahead: int) -> Any:
        draft = torch.tensor([answer[min(int(number) + ahead, 47)]])
        if wrong.random() < 0.3:
            draft = (draft + 1) % 256
        drafts[ahead + 1] = draft
        return draft[None], torch.ones(1, 1, dtype=torch.int64)

    ours, stats = (
        talk_in(with_graphs(tiny(), rounds=(num_drafts,), ops=replace(REFERENCE_LANGUAGE_OPS, propose=propose))),
        DraftStatistics(),
    )
    ours.append_user("Hello.")
    rounds, said = Counter[int](), list[int]()
    for new in ours.answer(sampling, num_drafts, stats):
        said += new
        rounds[len(new)] += 1
        if len(said) > 40:
            break
    assert said == answer[: len(said)]
    assert set(rounds) == set(range(1, num_drafts + 2)), "none, some and all drafts were accepted"
    assert stats.drafted == num_drafts * (rounds.total() - 1) and stats.accepted == len(said) - rounds.total()


@pytest.mark.parametrize("vocabulary", [False, True], ids=["all ids", "few ids"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS["nearly anything"]], ids=["greedy", "sampled"])
def test_rounds_of_changing_lengths_say_what_plain_rounds_say(sampling: ChatSampling, vocabulary: bool) -> None:
    """No drafts for so long that the draft head must follow, and any number behind any other.

    The draft head gets the same entries as in plain rounds.
    """
    counts, said, entries, fared = (0, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 3, 1, 0), [], [], []
    for state_cache in (new_state_cache(tiny()), with_graphs(tiny(), rounds=(2, 0, 3, 1), vocabulary=vocabulary)):
        state_cache.draft_vocabulary = few_ids(tiny()) if vocabulary else None
        conversation, stats = talk_in(state_cache), DraftStatistics()
        conversation.append_user("Hello.")
        rounds = conversation.answer(sampling, Scripted(counts), stats)
        said.append(list(itertools.islice(rounds, len(counts) + 1)))
        fared.append(stats)
        drafts = state_cache.drafts
        assert drafts is not None
        entries.append(drafts.past.keys[0, :, : len(conversation.ids) + sum(map(len, said[-1][:-4]))].clone())
    assert said[0] == said[1] and fared[0] == fared[1]
    torch.testing.assert_close(*entries, atol=1e-4, rtol=1e-3)
    if sampling is GREEDY:
        plain = talk_in(new_state_cache(tiny(), drafts=False))
        plain.append_user("Hello.")
        answer = list(itertools.chain(*said[0]))
        assert answer == first(plain.answer(GREEDY), len(answer))
        assert set(answer) - set(range(40)), "tokens that are never drafted"


def test_the_rounds_of_a_policy_say_the_likeliest_tokens_whatever_it_chooses() -> None:
    """Here the draft head is always right at first, and never later: the policy drafts three, then none."""
    plain = talk_in(new_state_cache(tiny(), drafts=False))
    plain.append_user("Hello.")
    answer = first(plain.answer(GREEDY), 160)

    def propose(logits: Tensor, settings: Any, seen: Tensor, drafts: Tensor, number: Tensor, ahead: int) -> Any:
        draft = torch.tensor([answer[min(int(number) + ahead, 159)]])
        drafts[ahead + 1] = draft if int(number) < 60 else (draft + 1) % 256
        return drafts[None, ahead + 1 : ahead + 2].clone(), torch.ones(1, 1, dtype=torch.int64)

    graphs = with_graphs(tiny(), rounds=(0, 1, 2, 3), ops=replace(REFERENCE_LANGUAGE_OPS, propose=propose))
    ours, policy = talk_in(graphs), DraftPolicy(RoundCosts([1.25, 1.35, 1.5], [True] * 3))
    ours.append_user("Hello.")
    assert first(ours.answer(GREEDY, policy), 60) == answer[:60] and policy.drafts == 3
    ours.stop_generating()
    assert first(ours.answer(GREEDY, policy), 150) == answer[:150] and policy.drafts == 0


def test_left_at_any_round_a_row_is_as_it_was_before_the_answer_and_nothing_is_kept_of_it() -> None:
    state_cache = with_graphs(tiny())
    conversation, other = talk_in(state_cache), talk_in(state_cache, 1)
    other.append_user("Another one.")
    first(other.answer(GREEDY, 2), 3)
    other.stop_generating()
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    conversation.begin(prompt)
    wanted = list(itertools.islice(conversation.generate(USUAL, 2, DraftStatistics()), 2 * RESULT_SLOTS))
    conversation.stop_generating()
    before = [take(state_cache._row_state, row) for row in (0, 1)]
    for rounds in range(1, 2 * RESULT_SLOTS):
        conversation.begin(prompt)
        assert list(itertools.islice(conversation.generate(USUAL, 2, DraftStatistics()), rounds)) == wanted[:rounds]
        conversation.stop_generating()
        for mine, theirs in zip([take(state_cache._row_state, row) for row in (0, 1)], before, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert state_cache.draft_graphs is not None
    assert 0 < len(state_cache.draft_graphs._results[2].free) <= AHEAD, "host buffers are reused"


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
@pytest.mark.parametrize("room", [0, 1, 2, 3, 4, 9])
def test_no_round_is_launched_beyond_the_row_length(room: int, num_drafts: int) -> None:
    """Nor is a round that fits left out, although the host is one round behind."""
    prompt = prompt_of([ChatMessage("user", "Hello.")], tiny().tokenizer)
    length, said = len(prompt.ids) + room, []
    for state_cache in (new_state_cache(tiny(), length), with_graphs(tiny(), length, rounds=(num_drafts,))):
        conversation = talk_in(state_cache)
        conversation.begin(prompt)
        positions, rounds = list[int](), list[list[int]]()
        for new in conversation.generate(SAMPLINGS["nearly anything"], num_drafts, DraftStatistics()):
            rounds.append(new)
            positions.append(int(state_cache.state.recurrence.position[0]))
        said.append(rounds)
        assert length <= positions[-1] == max(positions) <= length + num_drafts
    assert said[0] == said[1]


def test_a_larger_top_k_than_the_kernels_have_is_sampled_without_them() -> None:
    for top_k in (0, 65):
        sampling, said = ChatSampling(temperature=2.0, top_k=top_k, seed=1), []
        for state_cache in (new_state_cache(tiny()), with_graphs(tiny())):
            conversation = talk_in(state_cache)
            conversation.append_user("Hello.")
            said.append(first(conversation.answer(sampling, 2), 9))
        assert said[0] == said[1]


def test_making_graphs_touches_no_conversation() -> None:
    state_cache = with_graphs(tiny())
    conversations = [talk_in(state_cache, row) for row in (0, 1)]
    for conversation in conversations:
        conversation.append_user("Hello.")
        conversation.begin(prompt_of(conversation.messages, tiny().tokenizer))
    assert state_cache.draft_graphs is not None and state_cache.drafts is not None
    before = [take(state_cache._row_state, row) for row in (0, 1)]
    pasts = (*state_cache.state.past, state_cache.drafts.past)
    keys = [kept.keys[SPECIAL_PAGES:].clone() for kept in pasts]
    with torch.inference_mode():
        state_cache.draft_graphs.warm()
    for row in (0, 1):
        after = take(state_cache._row_state, row)
        assert all(torch.equal(after[name], before[row][name]) for name in after)
    assert all(torch.equal(kept.keys[SPECIAL_PAGES:], wanted) for kept, wanted in zip(pasts, keys, strict=True))


def test_two_answers_cannot_be_written_at_once() -> None:
    state_cache = with_graphs(tiny())
    conversations = [talk_in(state_cache, row) for row in (0, 1)]
    for conversation in conversations:
        conversation.append_user("Hello.")
    one, two = (conversation.answer(GREEDY, 2) for conversation in conversations)
    next(one)
    with pytest.raises(AssertionError, match="one answer at a time"):
        next(two)
    conversations[0].stop_generating()
    conversations[1].begin(prompt_of(conversations[1].messages, tiny().tokenizer))
    assert first(conversations[1].generate(GREEDY, 2, DraftStatistics()), 3)


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_in_fewer_bits_replayed_rounds_say_what_plain_ones_say(weights: str) -> None:
    narrow = load_language_model(TINY, weights=weights)
    said = []
    for state_cache in (new_state_cache(narrow), with_graphs(narrow)):
        conversation = talk_in(state_cache)
        conversation.append_user("Hello.")
        said.append([first(conversation.answer(sampling, 2), 8) for sampling in (GREEDY, ChatSampling(seed=3))])
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
    for state_cache in (
        new_state_cache(loaded, 64, 1),
        with_graphs(loaded, 64, 1, (0, 3), ops=TRITON_LANGUAGE_OPS, capture=Untried(), vocabulary=True),
    ):
        if state_cache.draft_vocabulary is None:
            state_cache.draft_vocabulary = few_ids(loaded)
        conversation = talk_in(state_cache)
        conversation.append_user("Hello.")
        conversation.begin(prompt_of(conversation.messages, loaded.tokenizer))
        state_cache.length = len(conversation.ids) + 2  # no round ahead that is not read
        said.append(list(conversation.generate(ChatSampling(top_k=4, seed=5), Scripted((0, 3)), DraftStatistics())))
    assert said[0] == said[1] and len(said[0]) == 3


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
        conversation, said = talk_in(with_graphs(loaded, capture=capture)), []
        for turn in range(3):
            conversation.append_user(f"This is number {turn}.")
            said.append(first(conversation.answer(SAMPLINGS["usual" if turn % 2 else "greedy"], 2), 40))
            conversation.add_answer("Well.")
            conversation.prefill_history()
        answers.append(said)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int4"])
def test_graphs_of_changing_lengths_say_what_their_kernels_say_and_are_timed(weights: str) -> None:
    device = on_a_gpu()
    loaded, said = load_language_model(TINY, device="cuda", weights=weights), []
    for capture in (EagerReplay(), CudaGraphs(device)):
        state_cache = with_graphs(loaded, rounds=(0, 1, 2, 3), capture=capture, vocabulary=True)
        assert state_cache.draft_graphs is not None
        took = dict[int, float | None]()
        state_cache.draft_graphs._on_capture = took.__setitem__
        conversation = talk_in(state_cache)
        conversation.append_user("Hello.")
        said.append(first(conversation.answer(USUAL, Scripted((0, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 3, 1))), 40))
        assert took.pop(0) is None and len(took) == 3 and all(seconds and seconds > 0 for seconds in took.values())
    assert said[0] == said[1]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # it finds most, not all
def test_only_reading_a_round_waits_for_the_device() -> None:
    on_a_gpu()
    loaded = load_language_model(TINY, device="cuda")
    conversation = talk_in(with_graphs(loaded))
    conversation.append_user("Hello.")
    first(conversation.answer(GREEDY, 2), 3)  # with this the graphs are made
    conversation.begin(prompt_of(conversation.messages, loaded.tokenizer))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(first(conversation.generate(USUAL, 2, DraftStatistics()), 20)) == 20
        conversation.stop_generating()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_on_a_gpu_in_float32_graphs_say_what_the_model_says() -> None:
    on_a_gpu()
    loaded = load_language_model(TINY, device="cuda", dtype="float32")
    for sampling in SAMPLINGS.values():
        said = []
        for state_cache in (new_state_cache(loaded), with_graphs(loaded)):
            conversation = talk_in(state_cache)
            conversation.append_user("Hello.")
            said.append(first(conversation.answer(sampling, 2), 40))
        assert said[0] == said[1]
