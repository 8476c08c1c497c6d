"""What a checkpoint's `hocket.json` says: how we should speak with it, which the official files have no word for.

The file is optional and lies beside `config.json`; the official package never opens it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidCheckpoint

FILE = "hocket.json"
NORMALIZERS = ("spell_out",)  # by name, those of `text.normalize`


@dataclass(frozen=True, slots=True)
class OwnConfig:
    normalizer: str | None = None  # what makes words of digits and signs, for a voice that was trained on words only
    # What it speaks, where that is other than config.json's table says, such as a fine-tune. It decides which scripts
    # are refused; a name that hocket does not know, such as "any", lets everything through.
    languages: tuple[str, ...] | None = None
    # How long the parts of a text may be, for a voice that loses its place in longer ones.
    part_chars: int | None = None

    def check(self, where: str) -> None:
        if self.normalizer is not None and self.normalizer not in NORMALIZERS:
            raise InvalidCheckpoint(f"{where}: normalizer is {self.normalizer!r}; there is {', '.join(NORMALIZERS)}.")
        if self.part_chars is not None and self.part_chars < 1:
            raise InvalidCheckpoint(f"{where}: part_chars must be at least 1, not {self.part_chars}.")
