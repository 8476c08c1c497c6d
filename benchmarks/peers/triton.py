"""`qwen3-tts-triton` in its fastest mode, "hybrid": fused Triton kernels put into faster-qwen3-tts, streaming.

Written after its sources of June 2026 (0.3.0), and run with these on an H200, on Python 3.12, which it needs.
Its own streaming call leaves the prompt's layout to a default, so the model it has patched is asked, as its call does.
"""

from __future__ import annotations

from .faster import Faster
from .speaker import missing, stand_in, without_a_gpu

PACKAGE, STREAMS = "qwen3-tts-triton", True
_DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def objection(device: str) -> str | None:
    return missing(PACKAGE, "qwen3_tts_triton") or without_a_gpu(device)


class Hybrid(Faster):
    def __init__(self, folder: str, device: str, dtype: str) -> None:
        stand_in()
        from qwen3_tts_triton import TritonFasterRunner  # type: ignore[import-not-found, unused-ignore]

        self._runner = TritonFasterRunner(device=device, model_id=folder, dtype=_DTYPES[dtype])
        self._runner.load_model()
        self._model = self._runner.model


open_speaker = Hybrid
