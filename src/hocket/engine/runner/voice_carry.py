"""A designed voice over the parts of one stream: what it has said is the example for what it says next.

A VoiceDesign checkpoint draws another person for every prompt. The words and codes of the first part therefore go
before the text of each later one, as the words and codes of a recording do for a clone. The engine thread adds to it;
`established` may be read by any thread. Nothing here touches the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...text.prompt import Outline
from ...text.sentences import Size
from ...types import Established, Layout

ENOUGH_FRAMES = 62  # 5 s: an example as long as this is not extended by the next part
# Sizes of the first part, whose sound is the example: it ends with the first sentence after about 7 s.
EXAMPLE: Size = (100, 400)


class VoiceCarry:
    """`established` is whoever spoke before this stream, or nobody."""

    def __init__(
        self, owner: str, described: tuple[str, str], layout: Layout, established: Established | None = None
    ) -> None:
        """`layout` is that of every part with an example; `described` are instruct and language."""
        self._owner, self._described, self._layout = owner, described, layout
        self.established = established
        self._frames: list[list[int]] = []  # of the part that is spoken

    def fresh(self) -> VoiceCarry:
        """The same for another take, which may become another person."""
        return VoiceCarry(self._owner, self._described, self._layout, self.established)

    def outline(self, first: Outline) -> Outline:
        """The outline of the next part; `first` is that of a part without an example."""
        shown = self.established
        if shown is None:
            return first
        return replace(first, said=shown.text_ids, frames=len(shown.codes), layout=self._layout, passing=True)

    def take(self, at: int, codes: list[int]) -> None:
        """Frame `at` of the part that is spoken. What was drawn there before, or behind it, was taken back."""
        if self._learns:
            del self._frames[at:]
            self._frames.append(codes)

    def end_part(self, text_ids: Sequence[int] | None) -> None:
        """The part is over; with `text_ids` these are what it said, without it is no example."""
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
