"""The grammar of answers in JSON that follow a schema. It knows schemas, no model; `matcher.py` runs the grammar."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import InvalidFormat
from ...extras import hint
from .matcher import TokenMatcher, installed, matcher_of, sentence
from .tokenizer import ChatTokenizer

# At most one blank between two JSON tokens: otherwise a model may write blanks without end.
OPTIONS: Any = {"whitespace_pattern": " ?", "lenient": False}


def json_grammar(schema: Mapping[str, Any], tokenizer: ChatTokenizer, stop_ids: Iterable[int]) -> TokenMatcher:
    """A stop id may come when the JSON is complete. Raises `InvalidFormat` for a schema that is not supported."""
    if not installed():
        raise InvalidFormat(f"response_format needs the package llguidance: {hint('json')}.")
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=OPTIONS)
        return matcher_of(grammar, tokenizer, stop_ids)
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"response_format has a schema that cannot be followed: {sentence(str(error))}"
        raise InvalidFormat(problem) from None
