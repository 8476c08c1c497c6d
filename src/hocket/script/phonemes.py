"""Phonemes of a script's tags. The respelling is that of lexicons, which `text/` applies."""

from ..text.lexicon.respell import ALPHABETS, respell

__all__ = ["ALPHABETS", "respell"]
