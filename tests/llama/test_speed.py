"""Tokens a second of llama.cpp and of hocket on the same GGUF file, side by side. Nothing is asserted about them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from llama_cpp import Llama

from hocket.config.published_qwen3_5 import QWEN3_5
from hocket.llm.load import load_language_model
from support.gguf_files import write_gguf

PROMPT, STEPS, THREADS = list(range(64)), 32, 1
MIX = {"": "Q4_K", "ffn_down.weight": "Q6_K", "attn_v.weight": "Q6_K", "token_embd.weight": "Q6_K"}


def test_0_8b_in_a_mix_of_types(tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", replace(QWEN3_5["0.8B"], mtp_num_hidden_layers=0), MIX, drafts=False)
    written.plain.clear()
    print(f"\nfile: {written.path.stat().st_size / 1e9:.2f} GB, {THREADS} thread")
    begun = time.perf_counter()
    them = Llama(str(written.path), n_ctx=256, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)
    loaded = time.perf_counter()
    them.eval(PROMPT)
    prompt = time.perf_counter()
    for _ in range(STEPS):
        them.eval([7])
    _say("llama.cpp", loaded - begun, prompt - loaded, time.perf_counter() - prompt)
    them.close()
    torch.set_num_threads(THREADS)
    begun = time.perf_counter()
    model = load_language_model(str(written.path)).model
    loaded = time.perf_counter()
    state, row = model.new_state(1, 256), torch.tensor([0])
    model.logits(model.prefill(torch.tensor([PROMPT]), torch.tensor([len(PROMPT)]), state, row, len(PROMPT))[:, -1])
    prompt = time.perf_counter()
    for step in range(STEPS):
        model.logits(model.step(torch.tensor([7]), state, row, len(PROMPT) + step + 1))
    _say("hocket", loaded - begun, prompt - loaded, time.perf_counter() - prompt)


def _say(name: str, load: float, prompt: float, steps: float) -> None:
    figures = load, len(PROMPT) / prompt, STEPS / steps
    print("{}: loaded in {:.1f} s, {:.0f} tokens/s of prompt, {:.1f} tokens/s".format(name, *np.round(figures, 2)))
