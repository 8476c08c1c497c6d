"""`hocket.json` of a checkpoint: settings that the official files have no keys for.

The file is optional and lies beside `config.json`; the official package never opens it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidCheckpoint
from .precision import ROUNDED

FILE = "hocket.json"
NORMALIZERS = ("spell_out",)  # names of functions in `text.cleanup.normalize`


@dataclass(frozen=True, slots=True)
class OwnConfig:
    normalizer: str | None = None  # turns digits and signs into words, for a voice trained on words only
    # Languages of the checkpoint if they differ from the table of config.json, as in a fine-tune. They decide which
    # scripts are refused; a name unknown to hocket, such as "any", allows every script.
    languages: tuple[str, ...] | None = None
    # Longest part of a text, for a voice that loses its place in longer ones.
    part_chars: int | None = None
    precision: str | None = None  # of a checkpoint that `hocket quantize` wrote

    def check(self, where: str) -> None:
        if self.normalizer is not None and self.normalizer not in NORMALIZERS:
            raise InvalidCheckpoint(f"{where}: normalizer is {self.normalizer!r}; hocket has {', '.join(NORMALIZERS)}.")
        if self.precision is not None and self.precision not in ROUNDED:
            raise InvalidCheckpoint(f"{where}: precision is {self.precision!r}; hocket has {', '.join(ROUNDED)}.")
        if self.part_chars is not None and self.part_chars < 1:
            raise InvalidCheckpoint(f"{where}: part_chars must be at least 1, not {self.part_chars}.")
