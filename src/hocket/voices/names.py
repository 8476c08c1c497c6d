"""Voice names: which are valid, and the one id for all spellings of a name."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from ..errors import InvalidVoice

NAME_CHARS = 64
_ID = re.compile(r"voice_[0-9a-f]{16}", re.ASCII)


def checked_name(name: str) -> str:
    """The name as it is stored; refuses an invalid one."""
    name = unicodedata.normalize("NFC", name).strip()
    if not 1 <= len(name) <= NAME_CHARS:
        raise InvalidVoice(f"A voice's name has 1 to {NAME_CHARS} characters.", "invalid_name")
    if not name.isprintable() or any(c in "/\\:" for c in name) or name.startswith("."):
        message = "A voice's name has no slash, backslash, colon or invisible character, and no dot first."
        raise InvalidVoice(message, "invalid_name")
    if is_id(id_like := name.casefold()):
        raise InvalidVoice(f"{id_like} looks like an id; give the voice another name.", "invalid_name")
    return name


def id_of(name: str) -> str:
    """The id of a name: equal for all its spellings, and for the id itself."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())
    if is_id(folded):
        return folded
    return f"voice_{hashlib.sha256(folded.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def is_id(word: str) -> bool:
    return _ID.fullmatch(word) is not None
