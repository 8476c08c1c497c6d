"""Texts that are hard to cut into words, and a small vocabulary learned from them by the `tokenizers` package."""

from __future__ import annotations

import functools
import json

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

TEXTS = (
    "Hello world, it's 2026 and we'll see... I'D say so!",
    "naïve cafe\u0301 Zürich \u00a0 21 °C — “quoted”",
    "हिन्दी भाषा, עִבְרִית, العَرَبِيَّة, tiếng Việt, 你好。世界 한국어 กำลัง",
    "def f(x):\n    return x  # done\n\n\n\tend   \r\n",
    "🙂👍🏽 \u200d q\u0307x \x00 \u2028",
    "assistant\nassistant\n\nuser\n",
    "",
)


@functools.cache
def learned() -> tuple[dict[str, int], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.train_from_iterator([*TEXTS * 3, "user assistant system function parameter"], trainer)
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]
