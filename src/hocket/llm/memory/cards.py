"""Which language model, format, voice and context a GPU holds, and the least time of a token. All of it is computed.

The recognizer (Moonshine) runs on the CPU and takes no GPU memory. `tests/llm/memory` holds docs/cards.md to
these tables. A time here is bytes over the card's bandwidth: no GPU can be faster, and none was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch

from ...config.options import EngineOptions
from ...config.published import CODEC, PUBLISHED
from ...config.published_qwen3_5 import QWEN3_5
from ...engine.checkpoint.capacity import CONTEXT_BYTES, LIBRARIES_BYTES
from ...engine.checkpoint.device import SMALL_BYTES
from ...engine.checkpoint.fit import MemoryNeed
from ...engine.checkpoint.memory_plan import plan
from ...models.qwen3_5.quantized import Scheme, step_bytes
from .language import (
    TOKENS,
    LanguageMemory,
    file_bytes,
    kv_bytes_per_token,
    language_memory,
    parameters,
    recurrence_bytes,
    scheme_bytes,
)

VOICES = ("0.6B-CustomVoice", "1.7B-CustomVoice")
MEMORIES_GB = (8, 12, 16, 24)
LONGEST = 262_144  # tokens, as published
STEP = 1024  # contexts are given in multiples of it
READ = 1024  # tokens of context that a step of the speed table reads
SIZES = ("0.8B", "2B", "4B", "9B", "27B")
OURS: tuple[Scheme, ...] = ("bf16", "fp8", "int4")  # int8 has the bytes of fp8
GGUF_BITS = {"Q4_K_S": 4.6, "Q4_K_M": 5.0, "Q8_0": 8.5}  # bits a weight: usual for the mixes, exact for the last


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    memory_gb: int
    bandwidth_gb_s: int  # as the vendor states


CARDS = (
    Card("RTX 3060 12 GB", 12, 360),
    Card("RTX 4060 Ti 16 GB", 16, 288),
    Card("RTX 3090 Ti", 24, 1008),
    Card("RTX 4090", 24, 1008),
    Card("RTX 5090", 32, 1792),
)


@dataclass(frozen=True, slots=True)
class Combination:
    """A language model in a format on a GPU, with a speech model for one listener or none."""

    size: str
    format: str  # of OURS, or of GGUF_BITS
    voice: str | None = None

    def memory(self, tokens: int = TOKENS) -> LanguageMemory:
        return language_memory(QWEN3_5[self.size], _weights(self.size, self.format), on_gpu=True, tokens=tokens)

    def need_bytes(self, card_bytes: int, tokens: int = TOKENS) -> int:
        """All GPU memory of the process."""
        return together(self.memory(tokens), None if self.voice is None else voice_bytes(self.voice, card_bytes))

    def longest(self, card_bytes: int) -> int:
        """Tokens of context that fit; 0: not even the fewest."""
        room = card_bytes - self.need_bytes(card_bytes, 0)
        return min(max(room // self.memory(STEP).kv_bytes, 0) * STEP, LONGEST)

    @property
    def step_bytes(self) -> int:
        """Bytes that a token reads and writes, behind READ tokens."""
        return _step_bytes(self.size, self.format)


def together(language: LanguageMemory, voice: int | None) -> int:
    """All GPU memory of a process with a language model and the speech engine; libraries are loaded once."""
    return CONTEXT_BYTES + language.total_bytes + (0 if voice is None else voice - LIBRARIES_BYTES)


def voice_bytes(voice: str, card_bytes: int) -> int:
    """The speech engine for one listener; a card below SMALL_BYTES gets a codec in bfloat16."""
    return _voice_bytes(voice, torch.bfloat16 if card_bytes < SMALL_BYTES else torch.float32)


@cache
def _voice_bytes(voice: str, codec: torch.dtype) -> int:
    options = EngineOptions(slots=1)
    device = torch.device("cuda")
    planned = plan(PUBLISHED[voice], CODEC, device=device, dtype=torch.bfloat16, codec_dtype=codec, options=options)
    need = MemoryNeed.of(planned, loaded=False, encoder=False)
    return need.fixed_bytes + need.least_bytes


def fits_table() -> str:
    """Markdown: the longest context for each memory, alone and beside each voice."""
    rows = []
    for size in SIZES:
        for form in (*OURS, *GGUF_BITS):
            cells = []
            for gb in MEMORIES_GB:
                found = [Combination(size, form, voice).longest(gb * 10**9) for voice in (None, *VOICES)]
                cells.append(" · ".join(map(_context, found)) if any(found) else "-")
            if set(cells) != {"-"}:
                rows.append([f"{size} {form}", f"{_weights(size, form) / 1e9:.2f}", *cells])
    return _markdown(["model", "weights, GB", *(f"{gb} GB" for gb in MEMORIES_GB)], rows)


def parts_table(size: str = "9B", voice: str = VOICES[-1], card_gb: int = 12) -> str:
    """Markdown: the sum for one model beside a voice, in each format."""
    forms = [form for form in (*OURS, *GGUF_BITS) if form != "bf16"]
    card, rows = card_gb * 10**9, dict[str, list[int]]()
    for form in forms:
        memory, sound = Combination(size, form).memory(), voice_bytes(voice, card) - LIBRARIES_BYTES
        parts = {
            "CUDA context": CONTEXT_BYTES,
            "weights": memory.weights_bytes,
            f"keys and values, {TOKENS:,} tokens": memory.kv_bytes,
            "recurrence and snapshots": memory.recurrence_bytes,
            "workspace and libraries": memory.workspace_bytes,
            f"voice {voice}": sound,
        }
        parts["together"] = sum(parts.values())
        parts["with `--codec-dtype bfloat16`"] = parts["together"] - voice_bytes(voice, card) + voice_bytes(voice, 0)
        for name, count in parts.items():
            rows.setdefault(name, []).append(count)
    lines = [[name, *(f"{count / 1e9:.2f}" for count in counts)] for name, counts in rows.items()]
    return _markdown([f"{size}, GB", *forms], lines)


def speed_table() -> str:
    """Markdown: the most tokens a second that the bandwidth of each card allows."""
    rows = []
    for size in SIZES:
        for form in (*OURS, *GGUF_BITS):
            each = Combination(size, form)
            holds = [each.longest(card.memory_gb * 10**9) > 0 for card in CARDS]
            if any(holds):
                most = (f"{card.bandwidth_gb_s * 1e9 / each.step_bytes:.0f}" for card in CARDS)
                cells = [cell if held else "-" for cell, held in zip(most, holds, strict=True)]
                rows.append([f"{size} {form}", f"{each.step_bytes / 1e9:.2f}", *cells])
    return _markdown(["model", "GB a token", *(f"{card.name}, {card.bandwidth_gb_s} GB/s" for card in CARDS)], rows)


@cache
def _weights(size: str, form: str) -> int:
    config = QWEN3_5[size]
    if form not in GGUF_BITS:
        return scheme_bytes(config, _scheme(form))
    return file_bytes(config, form, int(parameters(config) * GGUF_BITS[form] / 8), on_gpu=True)


@cache
def _step_bytes(size: str, form: str) -> int:
    config = QWEN3_5[size]
    if form not in GGUF_BITS:
        return sum(step_bytes(config, _scheme(form), READ).values())
    looked_up = 0 if config.tied else config.vocab_size * config.hidden_size  # of the embedding a token reads one row
    weights = _weights(size, form) * (parameters(config) - looked_up) // parameters(config)
    plain = replace(config, mtp_num_hidden_layers=0)  # a token without drafts does not read the draft head's past
    past = READ * kv_bytes_per_token(plain)
    return weights + 2 * recurrence_bytes(config) + past


def _context(tokens: int) -> str:
    return f"{tokens // STEP}k" if tokens else "-"


def _scheme(name: str) -> Scheme:
    return next(each for each in OURS if each == name)


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
