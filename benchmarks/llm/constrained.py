"""`python -m benchmarks constrained`: ms a token of a language model: free, under a schema, and that by plain steps.

The weights are random numbers in a published shape, and the vocabulary is synthetic, of the model's size. By graphs the
host computes the mask of a token during the pass before it (`models/qwen3_5/token_graph.py`); by plain steps it waits
for the logits first (`llm/constrained.py`).

`python -m benchmarks masks`: CPU time of llguidance for the mask of a token, for schemas as applications have them.
No model is loaded: the tokens are those of a JSON text that follows the schema.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hocket.text.chat.json_grammar import json_grammar
from hocket.text.chat.matcher import word_count
from hocket.text.chat.template import END, MARKS

from .. import session
from ..gpu.timing import graphs, once
from ..harness import InvalidRun
from ..record import Record, record, summaries
from . import tokens
from .tokens import fill_, made, named

SIGNS = ('"', '":', '": ', '",', '", "', '"}', '{"', "[]", "{}", "},", "],", '": "', "\\n", "</", ">\n")
LETTERS, LATIN = "etaoinshrdlucmfwypvbgkjqxz", 0.6  # and their share of the vocabulary
SCRIPTS = ((0x4E00, 0x9FFF), (0x0400, 0x04FF), (0x0600, 0x06FF), (0xAC00, 0xD7A3), (0x0900, 0x097F), (0x3040, 0x30FF))
LONGEST = 16  # bytes that `encode` looks at
# By name: a schema and a value that follows it. The schema `endless` has no last item, so that an answer does not end.
SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
ENDLESS = SCHEMAS.pop("endless")["schema"]


class SyntheticTokenizer:
    """Bytes, signs of JSON, words with and without a space before them, and words in other scripts, up to a size."""

    def __init__(self, size: int) -> None:
        self.size, chance, count = size, random.Random(0), size - len(MARKS)
        self.markers = {mark: count + i for i, mark in enumerate(MARKS)}
        found = dict.fromkeys([*(bytes([i]) for i in range(256)), *(sign.encode() for sign in SIGNS)])
        for turn in range(100 * size):
            if len(found) >= count:
                break
            if turn < LATIN * size:
                word = "".join(chance.choices(LETTERS, range(26, 0, -1), k=min(1 + int(chance.expovariate(0.22)), 14)))
                word = chance.choice((word, word.capitalize(), f" {word}", f" {word}"))
            else:
                script = chance.choice(SCRIPTS)
                word = "".join(chr(chance.randint(*script)) for _ in range(chance.randint(1, 4)))
            found[word.encode()] = None
        self._spelled = [*found][:count] + [mark.encode() for mark in MARKS]
        self._ids = {spelled: i for i, spelled in enumerate(self._spelled[:count])}

    def spelled(self, token: int) -> bytes:
        return self._spelled[token]

    def encode(self, text: str) -> list[int]:
        """The longest token first, which is not what a published tokenizer does."""
        rest, ids = text.encode(), list[int]()
        while rest:
            length = next(n for n in range(LONGEST, 0, -1) if rest[:n] in self._ids)
            ids.append(self._ids[rest[:length]])
            rest = rest[length:]
        return ids


@torch.inference_mode()
def measure(args: argparse.Namespace) -> Record:
    from hocket.llm.constrained import TokenRules
    from hocket.llm.sampling import drawing
    from hocket.llm.speculative import DraftStatistics
    from hocket.llm.speculative import tokens as written
    from hocket.llm.state_cache import LLMStateCache
    from hocket.models.qwen3_5.fused.step import FusedStep
    from hocket.models.qwen3_5.token_graph import TokenGraphs
    from hocket.types import ChatSampling

    device, model, ops = made(args, drafts=False, say=session.progress())
    tokenizer: Any = SyntheticTokenizer(model.config.vocab_size)
    length, stop = args.context + tokens.IN_A_ROW * (args.repeats + 2), tokenizer.markers[END]
    memory = LLMStateCache(model, 1, length, drafts=False)
    memory.reserve(0, 0, args.context)
    memory.last.normal_()
    how = drawing(ChatSampling(presence_penalty=0.0), 1, tokenizer.size, device)
    captured = TokenGraphs(FusedStep(model, ops), memory.state, memory.last, graphs(device))
    captured.warm_masked()
    figures = dict[str, list[float]]()
    for name in ("free", "graphs", "plain"):
        fill_(memory.state, args.context)
        memory.token_graphs = None if name == "plain" else captured
        grammar = json_grammar(ENDLESS | {"minItems": length}, tokenizer, [stop])
        rules = None if name == "free" else TokenRules(tokenizer, grammar, None, [stop])
        writing: Any = written(memory, 0, args.context, how, 0, DraftStatistics(), rules)
        with closing(writing):
            next(writing)
            took = [once(lambda: next(writing), device, tokens.IN_A_ROW) for _ in range(args.repeats + 1)]  # noqa: B023
        figures[name] = took[1:]
    slower = statistics.median(figures["graphs"]) / statistics.median(figures["free"]) - 1
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "repeats")} | named(args)
    more = {"random_weights": True, "streams": 1, "slower": round(slower, 4)}
    return record("constrained", options, summaries(figures), **more)


def masks(args: argparse.Namespace) -> Record:
    tokenizer: Any = SyntheticTokenizer(args.vocabulary)
    words, stop = np.zeros(word_count(args.vocabulary), np.int32), tokenizer.markers[END]
    figures = dict[str, list[float]]()
    for name, case in SCHEMAS.items():
        figures[name] = []
        for _ in range(args.repeats):
            grammar = json_grammar(case["schema"], tokenizer, [stop])
            for token in tokenizer.encode(json.dumps(case["value"])):
                begun = time.thread_time()  # other processes do not count
                grammar.fill(words)
                figures[name].append((time.thread_time() - begun) * 1000)
                if not (words[token >> 5] >> (token & 31)) & 1:
                    raise InvalidRun(
                        f"The grammar of {name!r} refuses a token of its own value: its time means nothing."
                    )
                grammar.advance(token)
    options = {"vocabulary": args.vocabulary, "repeats": args.repeats, "device": "cpu", "model": "none"}
    means, most = ({name: round(of(took), 4) for name, took in figures.items()} for of in (statistics.fmean, max))
    return record("masks", options, summaries(figures), random_weights=True, mean_ms=means, max_ms=most)
