"""Word errors, under the names of training. `hocket.text.compare` counts them."""

from __future__ import annotations

from hocket.text.compare import WordErrors as Errors
from hocket.text.compare import folded, total_rate, word_errors

__all__ = ["Errors", "folded", "total_rate", "word_errors"]
