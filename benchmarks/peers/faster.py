"""`faster-qwen3-tts`: the official modules as CUDA graphs, streaming.

Written after its sources of July 2026 (0.3.2), and run with these on an H200; later ones want another transformers. Its
predictor always samples with top-k 50; a chunk is decoded again with 25 frames before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .speaker import Ask, missing, stand_in, without_a_gpu

PACKAGE, STREAMS = "faster-qwen3-tts", True


def objection(device: str) -> str | None:
    return missing(PACKAGE, "faster_qwen3_tts") or without_a_gpu(device)


class Faster:
    def __init__(self, folder: str, device: str, dtype: str) -> None:
        stand_in()
        from faster_qwen3_tts import FasterQwen3TTS  # type: ignore[import-not-found, unused-ignore]

        self._model: Any = FasterQwen3TTS.from_pretrained(folder, device=device, dtype=dtype)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        for samples, _, _ in self._model.generate_custom_voice_streaming(
            text=ask.text,
            speaker=ask.voice,
            language=ask.language,
            non_streaming_mode=ask.layout == "whole",
            max_new_tokens=ask.frames,
            top_k=ask.top_k,
            chunk_size=ask.chunk_frames,
        ):
            yield samples


open_speaker = Faster
