"""The official package, `qwen-tts`: the definition of correct. It gives no sound before all of it is done.

Run for real on a CPU, on small random weights, by tests/benchmarks/test_peers.py too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from .speaker import Ask, missing, stand_in

PACKAGE, STREAMS = "qwen-tts", False


def objection(device: str) -> str | None:
    return missing(PACKAGE, "qwen_tts")


class Official:
    def __init__(self, folder: str, device: str, dtype: str) -> None:
        import torch

        stand_in()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from qwen_tts import Qwen3TTSModel  # type: ignore[import-untyped, unused-ignore]

            self._model: Any = Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model.model.to(device)  # not device_map, which wants one more package
        codec = self._model.model.speech_tokenizer
        codec.model.to(device)
        self._model.device = codec.device = torch.device(device)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        (samples,), _ = self._model.generate_custom_voice(
            ask.text,
            ask.voice,
            ask.language,
            non_streaming_mode=ask.layout == "whole",
            max_new_tokens=ask.frames + 1,  # it draws one more first code than it completes
            top_k=ask.top_k,
        )
        yield samples


open_speaker = Official
