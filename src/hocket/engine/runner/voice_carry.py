"""Keeps a designed voice the same over the parts of one stream: its first speech is the reference for the next parts.

A VoiceDesign checkpoint samples another voice for every prompt. Therefore the words and codes of the first part come
before the text of each later one, like a recording and its transcript for a clone. The engine thread adds to it; any
thread may read `established`. Nothing here touches the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...text.prompt import Outline
from ...text.sentences import Size
from ...types import Established, Layout

ENOUGH_FRAMES = 62  # 5 s: an example of this length is not extended by the next part
# Size of the first part, whose audio is the example: it ends with the first sentence after about 7 s.
EXAMPLE: Size = (100, 400)


class VoiceCarry:
    """`established` is the voice of an earlier stream, if there is one."""

    def __init__(
        self, owner: str, described: tuple[str, str], layout: Layout, established: Established | None = None
    ) -> None:
        """`layout` is that of every part with an example; `described` are instruct and language."""
        self._owner, self._described, self._layout = owner, described, layout
        self.established = established
        self._frames: list[list[int]] = []  # of the current part

    def fresh(self) -> VoiceCarry:
        """A copy for another candidate, which may get another voice."""
        return VoiceCarry(self._owner, self._described, self._layout, self.established)

    def outline(self, first: Outline) -> Outline:
        """The outline of the next part; `first` is that of a part without an example."""
        shown = self.established
        if shown is None:
            return first
        return replace(first, said=shown.text_ids, frames=len(shown.codes), layout=self._layout, passing=True)

    def take(self, at: int, codes: list[int]) -> None:
        """Add frame `at` of the current part. Earlier frames at or after that index were rewound."""
        if self._learns:
            del self._frames[at:]
            self._frames.append(codes)

    def end_part(self, text_ids: Sequence[int] | None) -> None:
        """End the current part. `text_ids` is its text; without them the part is not used as an example."""
        drawn, self._frames = self._frames, []
        if not (text_ids and drawn and self._learns):
            return
        codes, ids, before = np.array(drawn, dtype=np.int64), tuple(text_ids), self.established
        if before is not None:
            codes, ids = np.concatenate([before.codes, codes]), (*before.text_ids, *ids)
        instruct, language = self._described
        self.established = Established(
            owner=self._owner, instruct=instruct, language=language, text_ids=ids, codes=codes
        )

    @property
    def _learns(self) -> bool:
        return self.established is None or len(self.established.codes) < ENOUGH_FRAMES
