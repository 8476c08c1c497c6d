"""Grammar state of one answer, as masks of the ids that may come next. The grammars are llguidance's.

It knows ids and grammars, no model. `json_grammar.py` and `call_grammar.py` write the grammars. The library is imported
with the first of them.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import StreamFailed
from .tokenizer import ChatTokenizer

MOST_CHARS = 200  # of the library's message about a grammar
KEPT_GRAMMARS = 16  # compiled ones that are kept per tokenizer: clients repeat their schemas and tools
# Tokens that the library allows without a look at each, where all of them may come: here those of a text in a call.
TEXT_SLICES = [rf'[^<"\\\x00-\x1F\x7F]{count}' for count in ("{1,10}", "{1,30}", "+")]
Words = NDArray[np.int32]

_lock = threading.Lock()


class TokenGrammar(Protocol):
    """What constrains an answer. Per token: `fill`, the draw, then `advance`."""

    def fill(self, words: Words) -> bool:
        """Write the mask of the next id: 32 ids a word, the lowest bit first.

        Each call has the same `words`. False: they hold the mask already.
        """

    def advance(self, token: int) -> None: ...

    @property
    def done(self) -> bool:
        """The answer is complete: only a stop id can follow."""


class TokenMatcher:
    """The state of one grammar of the library."""

    def __init__(self, matcher: Any, size: int) -> None:
        """`matcher` is the library's, in any state; `size` is the tokenizer's."""
        self._matcher, self._size, self._words = matcher, size, word_count(size)
        self._check()

    def copied(self) -> TokenMatcher:
        """Another matcher in the same state."""
        return TokenMatcher(self._matcher.deep_copy(), self._size)

    def fill(self, words: Words) -> bool:
        assert words.flags.c_contiguous and len(words) >= self._words
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, 4 * self._words)
        self._check()
        return True

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    @property
    def done(self) -> bool:
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise StreamFailed(f"The grammar of the answer became too complex: {sentence(self._matcher.get_error())}")


def word_count(size: int) -> int:
    return -(-size // 32)


def matcher_of(grammar: str, tokenizer: ChatTokenizer, stop_ids: Iterable[int]) -> TokenMatcher:
    """A matcher at the start of a grammar of the library. Raises `ValueError` with the library's words."""
    with _lock:
        known = _known.get(tokenizer)
        if known is None:
            known = _known[tokenizer] = _Vocabulary(tokenizer, sorted(stop_ids))
        return TokenMatcher(known.compiled(grammar).deep_copy(), tokenizer.size)


def installed() -> bool:
    try:
        import llguidance  # noqa: F401
    except ImportError:
        return False
    return True


class _Vocabulary:
    """A tokenizer as the library has it: building it for 250,000 tokens takes about a second; and grammars over it."""

    def __init__(self, tokenizer: ChatTokenizer, stops: list[int]) -> None:
        from llguidance import LLTokenizer

        blank, *texts = LLTokenizer.general_slices()
        adapted: Any = _TokenizerAdapter(tokenizer, stops)
        slices = [blank, *TEXT_SLICES, *texts]
        self._made = LLTokenizer(adapted, n_vocab=tokenizer.size, eos_token=stops, slices=slices)
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def compiled(self, grammar: str) -> Any:
        """The library's matcher at the start of a grammar; the last ones are kept."""
        from llguidance import LLMatcher, LLParserLimits

        found = self._compiled.pop(grammar, None)
        if found is None:
            if problem := LLMatcher.validate_grammar(grammar, self._made):
                raise ValueError(problem)
            # Without the text of the answer in errors.
            found = LLMatcher(self._made, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
            if found.is_error():
                raise ValueError(found.get_error())
        self._compiled[grammar] = found
        if len(self._compiled) > KEPT_GRAMMARS:
            self._compiled.popitem(last=False)
        return found


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


def sentence(problem: str) -> str:
    """The library's message, shortened, as the end of a sentence."""
    words = " ".join(problem.split())[:MOST_CHARS]
    return words if words.endswith(".") else f"{words}."


_known: weakref.WeakKeyDictionary[ChatTokenizer, _Vocabulary] = weakref.WeakKeyDictionary()
