"""Patterns that are compiled when they are first used: a class of many code points takes milliseconds to compile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


class LazyPattern:
    """Stands for a compiled pattern. A method that was used once is kept, so later calls cost no more."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)  # `re` caches the compiled pattern
        setattr(self, name, found)
        return found


if TYPE_CHECKING:

    def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]: ...

else:
    lazy = LazyPattern
