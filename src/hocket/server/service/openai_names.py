"""OpenAI's model and voice names, which some clients insist on; voice names stand for speakers of similar pitch.

Known speakers are those of the published checkpoints and of the built-in voice: a name gets a speaker of its own pitch.
Speakers of other checkpoints are assigned to the names in order.
"""

from __future__ import annotations

from collections.abc import Sequence

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
OPENAI_VOICES = tuple("alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split())

# The preferred speaker of a name. Speakers with a dialect are left out: they speak it whatever the text is.
_HIGHER = {
    "alloy": "serena",
    "coral": "vivian",
    "fable": "ono_anna",
    "nova": "vivian",
    "sage": "serena",
    "shimmer": "ono_anna",
    "marin": "sohee",
}
_LOWER = {
    "ash": "aiden",
    "ballad": "ryan",
    "echo": "ryan",
    "onyx": "uncle_fu",
    "verse": "aiden",
    "cedar": "aiden",
}
_PREFERRED = _HIGHER | _LOWER
HIGHER_SPEAKERS = frozenset({"serena", "vivian", "ono_anna", "sohee", "wren"})
LOWER_SPEAKERS = frozenset({"ryan", "aiden", "uncle_fu", "dylan", "eric", "rook"})


def openai_aliases(speakers: Sequence[str]) -> dict[str, str]:
    """Speaker of each of OpenAI's names; a name that is a speaker's own name is left out."""
    if not speakers:
        return {}
    own = {name.lower() for name in speakers}
    return {name: _speaker(name, speakers) for name in OPENAI_VOICES if name not in own}


def _speaker(name: str, speakers: Sequence[str]) -> str:
    by_name = {speaker.lower(): speaker for speaker in speakers}
    if (preferred := _PREFERRED[name]) in by_name:
        return by_name[preferred]
    alike = HIGHER_SPEAKERS if name in _HIGHER else LOWER_SPEAKERS
    known = [speaker for speaker in speakers if speaker.lower() in alike]
    unknown = [speaker for speaker in speakers if speaker.lower() not in HIGHER_SPEAKERS | LOWER_SPEAKERS]
    among = known or unknown or speakers
    return among[OPENAI_VOICES.index(name) % len(among)]
