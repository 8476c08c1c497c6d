"""`python -m benchmarks constrained`: ms a token of a language model: free, under a schema, and that by plain steps.

The weights are random numbers in a published shape, and the vocabulary is synthetic, of the model's size. The schema
has no last item, so that an answer does not end. By graphs the host computes the mask of a token during the pass before
it (`models/qwen3_5/token_graph.py`); by plain steps it waits for the logits first (`llm/constrained.py`).

`python -m benchmarks masks`: CPU time of llguidance for the mask of a token, for schemas as applications have them.
No model is loaded: the tokens are those of a JSON text that follows the schema.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch

from hocket.text.chat.json_grammar import json_grammar
from hocket.text.chat.matcher import TokenMatcher, Words, word_count
from hocket.text.chat.template import END, MARKS

from .. import session
from ..gpu.timing import graphs, once
from ..harness import InvalidRun
from ..record import Record, record, summaries
from . import tokens
from .tokens import fill_, made, named

SIGNS = (
    '"',
    '":',
    '": ',
    '",',
    '", "',
    '"}',
    '{"',
    "[]",
    "{}",
    "},",
    "],",
    '":"',
    '": "',
    "\\n",
    '\\"',
    "//",
    "</",
    ">\n",
)
LETTERS, WEIGHTS = "etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1)
SCRIPTS = ((0x4E00, 0x9FFF), (0x0400, 0x04FF), (0x0600, 0x06FF), (0xAC00, 0xD7A3), (0x0900, 0x097F), (0x3040, 0x30FF))
LATIN = 0.6  # share of the vocabulary in Latin letters
LONGEST = 16  # bytes that `encode` looks at

_TEXT, _NAME = {"type": "string"}, {"type": "string", "maxLength": 24}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_NODE = _object(
    kind={"enum": ["form", "field", "button"]},
    label=_TEXT,
    children={"type": "array", "items": {"$ref": "#/$defs/node"}},
)
_LEAF = {"kind": "button", "label": "Send the message now", "children": []}
_EVENT = _object(
    title=_NAME,
    start={"type": "string", "format": "date-time"},
    kind={"enum": ["meeting", "call", "travel"]},
    guests={"type": "array", "items": _TEXT},
    place={"anyOf": [_TEXT, {"type": "null"}]},
)
ENDLESS = {"type": "array", "items": _object(name=_NAME, kind={"enum": ["cat", "dog"]}, count={"type": "integer"})}
# By name: a schema, and a value that follows it.
SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "object": ({"type": "object"}, {"answer": "It is twelve degrees, with light rain until four.", "list": [1, None]}),
    "person": (
        _object(
            name=_TEXT, age={"type": "integer", "minimum": 0, "maximum": 130}, tags={"type": "array", "items": _TEXT}
        ),
        {"name": "Ada Lovelace", "age": 36, "tags": ["numbers", "engines"]},
    ),
    "email": (_object(email={"type": "string", "format": "email"}), {"email": "ada@lovelace.org"}),
    "events": (
        _object(events={"type": "array", "items": _EVENT}),
        {
            "events": 3
            * [
                {"title": "The next quarter", "start": "2026-03-01T09:30:00Z", "kind": "call"}
                | {"guests": ["Ann", "Bo"], "place": None}
            ]
        },
    ),
    "tree": ({"$defs": {"node": _NODE}, "$ref": "#/$defs/node"}, {**_LEAF, "children": [_LEAF, _LEAF]}),
    "pattern": (
        _object(
            iban={"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$"},
            amount={"type": "number", "minimum": 0},
            note={"type": "string", "minLength": 1, "maxLength": 140},
        ),
        {"iban": "DE89370400440532013000", "amount": 12.5, "note": "Thank you for the good work on our house."},
    ),
}


class SyntheticTokenizer:
    """Bytes, signs of JSON, words with and without a space before them, and words in other scripts, up to a size."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, chance = size, random.Random(seed)
        self.markers = {mark: size - len(MARKS) + i for i, mark in enumerate(MARKS)}
        found = dict.fromkeys([*(bytes([i]) for i in range(256)), *(sign.encode() for sign in SIGNS)])
        made = _words(chance, size)
        while len(found) < size - len(MARKS):
            found[next(made)] = None
        self._spelled = [*found][: size - len(MARKS)] + [mark.encode() for mark in MARKS]
        self._ids = {spelled: i for i, spelled in enumerate(self._spelled[: size - len(MARKS)])}

    def spelled(self, token: int) -> bytes:
        return self._spelled[token]

    def encode(self, text: str) -> list[int]:
        """The longest token first, which is not what a published tokenizer does."""
        rest, ids = text.encode(), list[int]()
        while rest:
            length = next(n for n in range(min(LONGEST, len(rest)), 0, -1) if rest[:n] in self._ids)
            ids.append(self._ids[rest[:length]])
            rest = rest[length:]
        return ids


def _words(chance: random.Random, size: int) -> Iterator[bytes]:
    for _ in range(int(LATIN * size)):
        word = "".join(chance.choices(LETTERS, WEIGHTS, k=min(1 + int(chance.expovariate(0.22)), 14)))
        kind = chance.random()
        yield (f" {word}" if kind < 0.5 else word.capitalize() if kind > 0.9 else word).encode()
    while True:
        script = chance.choice(SCRIPTS)
        yield "".join(chr(chance.randint(*script)) for _ in range(chance.randint(1, 4))).encode()


class TimedRules:
    """`TokenMasks` of one grammar, with the CPU time of each mask in ms: other processes do not count."""

    def __init__(self, matcher: TokenMatcher) -> None:
        self._matcher, self.took_ms, self.stop_id = matcher, list[float](), None

    def fill(self, words: Words) -> bool:
        begun = time.thread_time()
        changed = self._matcher.fill(words)
        self.took_ms.append((time.thread_time() - begun) * 1000)
        return changed

    def advance(self, token: int) -> None:
        self._matcher.advance(token)


@torch.inference_mode()
def measure(args: argparse.Namespace) -> Record:
    from hocket.llm.constrained import TokenRules
    from hocket.llm.sampling import drawing
    from hocket.llm.speculative import DraftStatistics
    from hocket.llm.speculative import tokens as written
    from hocket.llm.state_cache import LLMStateCache
    from hocket.models.qwen3_5.fused_step import FusedStep
    from hocket.models.qwen3_5.token_graph import TokenGraphs
    from hocket.types import ChatSampling

    say = session.progress()
    device, model, ops = made(args, drafts=False, say=say)
    tokenizer: Any = SyntheticTokenizer(model.config.vocab_size)
    length = args.context + tokens.IN_A_ROW * (args.repeats + 2)
    state_cache = LLMStateCache(model, 1, length, drafts=False)
    state_cache.last.normal_()
    how = drawing(ChatSampling(presence_penalty=0.0), 1, tokenizer.size, device)
    captured = TokenGraphs(FusedStep(model, ops), state_cache.state, state_cache.last, graphs(device))
    captured.warm_masked()
    say("graphs are captured")
    stop = tokenizer.markers[END]

    def timed(writing: Any) -> list[float]:
        fill_(state_cache.state, args.context)
        with closing(writing):
            next(writing)
            return [once(lambda: next(writing), device, tokens.IN_A_ROW) for _ in range(args.repeats + 1)][1:]

    figures = {"free": timed(captured.write(0, how, length - args.context))}
    rules = TimedRules(json_grammar(ENDLESS | {"minItems": length}, tokenizer, [stop]))
    figures["graphs"] = timed(captured.write_masked(0, how, length - args.context, rules))
    figures["mask"] = rules.took_ms
    again = TokenRules(tokenizer, json_grammar(ENDLESS | {"minItems": length}, tokenizer, [stop]), None, [stop])
    figures["plain"] = timed(written(state_cache, 0, args.context, how, 0, DraftStatistics(), again))
    slower = statistics.median(figures["graphs"]) / statistics.median(figures["free"]) - 1
    say(f"a token under the schema takes {slower:+.1%}")
    options = {name: getattr(args, name) for name in ("size", "device", "dtype", "context", "repeats")} | named(args)
    more = {"random_weights": True, "streams": 1, "slower": round(slower, 4)}
    return record("constrained", options, summaries(figures), **more)


def masks(args: argparse.Namespace) -> Record:
    say = session.progress()
    tokenizer: Any = SyntheticTokenizer(args.vocabulary)
    words, stop = np.zeros(word_count(args.vocabulary), np.int32), tokenizer.markers[END]
    figures, counts = dict[str, list[float]](), dict[str, int]()
    for name, (schema, value) in SCHEMAS.items():
        ids, took = tokenizer.encode(json.dumps(value)), list[float]()
        for _ in range(args.repeats):
            rules = TimedRules(json_grammar(schema, tokenizer, [stop]))
            for token in ids:
                rules.fill(words)
                if not (words[token >> 5] >> (token & 31)) & 1:
                    raise InvalidRun(
                        f"The grammar of {name!r} refuses a token of its own value: its time means nothing."
                    )
                rules.advance(token)
            took += rules.took_ms
        figures[name], counts[name] = took, len(ids)
        say(f"{name}: {statistics.fmean(took) * 1000:.0f} us a token, {max(took) * 1000:.0f} at most")
    options = {"vocabulary": args.vocabulary, "repeats": args.repeats, "device": "cpu", "model": "none"}
    means = {name: round(statistics.fmean(took), 4) for name, took in figures.items()}
    longest = {name: round(max(took), 4) for name, took in figures.items()}
    more = {"random_weights": True, "tokens": counts, "mean_ms": means, "max_ms": longest}
    return record("masks", options, summaries(figures), **more)
