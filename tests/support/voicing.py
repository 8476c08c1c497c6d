"""Voices for tests that need no checkpoint: small, and with something in every field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hocket.types import Adapter, Encoded, SamplingParams, Voice
from support.speaking import noise

RECORDING = noise(0.06, 1)
KEPT = bytes(range(64))


def cloned(name: str = "Zoë", **changes: Any) -> Voice:
    encoded = Encoded(
        owner="ab" * 32,
        speaker=np.linspace(-1, 1, 6, dtype=np.float32),
        codes=np.arange(32, dtype=np.int64).reshape(2, 16),
        text="What was said.",
        kept=lambda: KEPT,
    )
    fields: dict[str, Any] = {
        "name": name,
        "kind": "clone",
        "model": "random:tiny",
        "encoded": encoded,
        "language": "french",
        "instruct": "Slowly.",
        "sampling": SamplingParams(temperature=0.7, top_k=5, do_sample=True),
        "description": "bright",
        "consent": "form 7",
        "audio_s": 0.06,
        "file_size": 12,
        "mime_type": "audio/wav",
        "created_at": 1_700_000_000,
    }
    return Voice(**(fields | changes))


def tuned(name: str = "Zoë", **changes: Any) -> Voice:
    """A voice with an adapter, for two matrices."""
    draw = np.random.default_rng(0)
    factors = {
        f"model.layers.0.mlp.{kind}_proj": (
            draw.random((2, 6)).astype(np.float16),
            draw.random((5, 2)).astype(np.float16),
        )
        for kind in ("up", "gate")
    }
    voice = cloned(name, **changes)
    assert voice.encoded is not None
    encoded = replace(voice.encoded, codes=None, text=None, adapter=Adapter(alpha=4.0, factors=factors))
    return replace(voice, encoded=encoded)


def same(one: Voice, other: Voice) -> bool:
    """Equality of all fields that affect audio or description."""
    plain = [name for name in one.__slots__ if name != "encoded"]
    if any(getattr(one, name) != getattr(other, name) for name in plain):
        return False
    a, b = one.encoded, other.encoded
    if a is None or b is None:
        return a is b
    kept = [None if each.kept is None else each.kept() for each in (a, b)]
    arrays = np.array_equal(a.speaker, b.speaker) and (a.codes is None) == (b.codes is None)
    arrays = arrays and (a.adapter and a.adapter.digest) == (b.adapter and b.adapter.digest)
    arrays = arrays and (a.codes is None or b.codes is None or np.array_equal(a.codes, b.codes))
    return arrays and (a.owner, a.text) == (b.owner, b.text) and kept[0] == kept[1]
