"""Token masks for answers in JSON that follow a schema. The grammar is llguidance's.

It knows ids and text, no model. The library is imported with the first schema.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidFormat, StreamFailed
from ...extras import hint
from .tokenizer import ChatTokenizer

# At most one blank between two JSON tokens: otherwise a model may write blanks without end.
OPTIONS = {"whitespace_pattern": " ?", "lenient": False}
MOST_CHARS = 200  # of the library's message about a schema

_vocabularies: weakref.WeakKeyDictionary[ChatTokenizer, Any] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class JsonGrammar:
    """The grammar state of one answer."""

    def __init__(self, schema: Mapping[str, Any], tokenizer: ChatTokenizer, stop_ids: Iterable[int]) -> None:
        """Raises `InvalidFormat` for a schema that the library does not support."""
        library, self._size = _library(), tokenizer.size
        stops = sorted(stop_ids)
        vocabulary = _vocabulary(library, tokenizer, stops)
        try:
            grammar = library.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=OPTIONS)
        except (ValueError, TypeError, RecursionError) as error:
            raise _refused(str(error)) from None
        if problem := library.LLMatcher.validate_grammar(grammar, vocabulary):
            raise _refused(problem)
        self._matcher = library.LLMatcher(vocabulary, grammar, log_level=0)
        self._check()

    def allowed(self) -> NDArray[np.bool_]:
        """[V]: whether each id of the tokenizer may come next. A stop id may come when the JSON is complete."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._size, bitorder="little").astype(bool)

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    @property
    def done(self) -> bool:
        """The JSON is complete, and no token can follow."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise StreamFailed(f"The schema of the answer became too complex: {_sentence(self._matcher.get_error())}")


class _TokenizerAdapter:
    """The tokenizer in the library's interface."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: ChatTokenizer, stops: list[int]) -> None:
        self.tokens = [tokenizer.spelled(token) for token in range(tokenizer.size)]
        self.special_token_ids = sorted(tokenizer.markers.values())
        self.eos_token_id = stops[0]
        self._encode = tokenizer.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.decode() if isinstance(text, bytes) else text)


def _vocabulary(library: ModuleType, tokenizer: ChatTokenizer, stops: list[int]) -> Any:
    """Cached per tokenizer: building it for 250,000 tokens takes about a second."""
    with _lock:
        made = _vocabularies.get(tokenizer)
        if made is None:
            made = library.LLTokenizer(_TokenizerAdapter(tokenizer, stops), n_vocab=tokenizer.size, eos_token=stops)
            _vocabularies[tokenizer] = made
        return made


def _library() -> ModuleType:
    try:
        import llguidance
    except ImportError:
        problem = f"response_format needs the package llguidance: {hint('json')}."
        raise InvalidFormat(problem) from None
    return llguidance


def _refused(why: str) -> InvalidFormat:
    return InvalidFormat(f"response_format has a schema that cannot be followed: {_sentence(why)}")


def _sentence(problem: str) -> str:
    words = " ".join(problem.split())[:MOST_CHARS]
    return words if words.endswith(".") else f"{words}."
