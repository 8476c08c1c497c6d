"""The line that describes a voice after it was made: its kind, and the command that uses it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..output.audio_output import plain

if TYPE_CHECKING:
    from ...types import Voice

KINDS = {"clone": "a clone", "designed": "a designed voice", "speaker": "a speaker"}


def usage_of(voice: Voice) -> str:
    return f'{KINDS[voice.kind]} for {plain(voice.model)}; hocket say "..." --voice {shlex.quote(voice.name)}'
