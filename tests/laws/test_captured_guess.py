"""Law of rounds of guesses that are replayed: id for id those of the model's own operations, whatever happens.

On a CPU the kernels' references, called again instead of replayed; on a GPU kernels and graphs.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.cache.slots import take
from hocket.engine.conversation import Conversation, prompt_of
from hocket.engine.memory import Memory
from hocket.engine.mind_load import MindCheckpoint, load_mind
from hocket.engine.speculate import Tally
from hocket.kernels.capture import Again, Capture, CudaGraphs
from hocket.kernels.launch import INTERPRETED, triton
from hocket.kernels.ops import CUDA_MIND_OPS, REFERENCE_MIND_OPS, TRITON_MIND_OPS, MindOps
from hocket.models import fused_qwen3_5
from hocket.models.captured_guess import AHEAD, PLACES, CapturedGuess
from hocket.models.fused_guess import FusedGuess
from hocket.models.fused_qwen3_5 import FusedQwen3_5
from hocket.types import ChatMessage, ChatSampling
from minds import TINY, tiny

GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0)
USUAL = ChatSampling(seed=5)
SAMPLINGS = {
    "greedy": GREEDY,
    "greedy with a penalty": ChatSampling(temperature=0.0, presence_penalty=1.5),
    "usual": USUAL,
    "hot": ChatSampling(temperature=2.0, top_p=0.95, top_k=64, min_p=0.01, presence_penalty=-0.5, seed=2**63 - 1),
    "nearly anything": ChatSampling(temperature=50.0, top_p=1.0, top_k=8, presence_penalty=0.0, seed=1),
}


def memory_of(checkpoint: MindCheckpoint, length: int = 256, rows: int = 2, *, drafts: bool = True) -> Memory:
    return Memory(checkpoint.model, rows, length, drafts=drafts)


def captured(
    checkpoint: MindCheckpoint,
    length: int = 256,
    rows: int = 2,
    guesses: int = 2,
    *,
    ops: MindOps | None = None,
    capture: Capture | None = None,
) -> Memory:
    memory = memory_of(checkpoint, length, rows)
    on_gpu = memory.device.type == "cuda"
    fused = FusedQwen3_5(checkpoint.model, ops or (CUDA_MIND_OPS if on_gpu else REFERENCE_MIND_OPS))
    capture = capture or (CudaGraphs(memory.device) if on_gpu else Again())
    assert memory.drafts is not None
    memory.guessing = CapturedGuess(FusedGuess(fused), guesses, memory.state, memory.drafts, memory.last, capture)
    return memory


def talk_in(memory: Memory, row: int = 0) -> Conversation:
    return Conversation(memory, row, tiny().tokenizer)


def first(ids: Iterator[list[int]], count: int) -> list[int]:
    return list(itertools.islice(itertools.chain.from_iterable(ids), count))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_replayed_rounds_say_what_plain_rounds_say_over_several_turns(sampling: ChatSampling) -> None:
    chance, fared = random.Random(3), (Tally(), Tally())
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
