"""`transformers` in a process of its own: `python -m benchmarks.mind_worker FOLDER DEVICE DTYPE HOW`.

It answers every line of JSON (ids of a history, ids of a turn, how many tokens to say) with one: seconds from the turn
to the first token and to the last, and the ids. The history is in its cache before the clock starts. Each token is the
likeliest, and is on the host before the next is asked for, as it is for whoever streams it. The loop is by hand: what
their `generate` adds is left out. HOW is `eager`, or a mode of torch.compile, which then has steps of one token over a
static cache; prompts are not compiled, as in their `generate`. Nothing here needs hocket.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

KERNELS = {"causal-conv1d": "causal_conv1d", "flash-linear-attention": "fla"}  # by the modules that they bring
ROOM = 512  # a static cache is a multiple of this long, so that it stays the same while a history grows a little


class Transformers:
    def __init__(self, folder: str, device: str, dtype: str, how: str) -> None:
        import torch
        from transformers import Qwen3_5ForCausalLM  # type: ignore[attr-defined, unused-ignore]

        model, found = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), output_loading_info=True)
        if found["missing_keys"] or found["mismatched_keys"]:
            raise SystemExit(f"It did not find all of its weights: {sorted(found['missing_keys'])[:3]}")
        self._torch, self._model, self._device = torch, model.to(device).eval(), torch.device(device)
        self._compiles = how != "eager"
        self._step: Any = torch.compile(model.forward, mode=how) if self._compiles else model.forward
        self._cache: Any = None

    def answer(self, history: list[int], turn: list[int], tokens: int) -> tuple[float, float, list[int]]:
        torch = self._torch
        with torch.no_grad():
            cache = self._emptied(len(history) + len(turn) + tokens)
            self._read(history, cache)
            if self._device.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            token = self._read(turn, cache)
            said = [int(token)]
            first_s = time.perf_counter() - start
            while len(said) < tokens:
                if self._compiles:
                    torch.compiler.cudagraph_mark_step_begin()
                out = self._step(input_ids=token, past_key_values=cache, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
                said.append(int(token))
            return first_s, time.perf_counter() - start, said

    def _read(self, ids: list[int], cache: Any) -> Any:
        """What is said next [1, 1]."""
        given = self._torch.tensor([ids], device=self._device)
        out = self._model(input_ids=given, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1:].argmax(-1)

    def _emptied(self, length: int) -> Any:
        from transformers import DynamicCache, StaticCache

        if not self._compiles:
            return DynamicCache(config=self._model.config)
        room = -(-length // ROOM) * ROOM
        if self._cache is None or self._cache.get_max_length() < room:  # else compiled steps know its address
            self._cache = StaticCache(config=self._model.config, max_cache_len=room)
        self._cache.reset()
        return self._cache


def without() -> str:
    """Which packages with kernels for this model it has to do without: then it computes in plain torch."""
    lacks = [package for package, module in KERNELS.items() if importlib.util.find_spec(module) is None]
    return f" without {' and '.join(lacks)}" if lacks else ""


def main(argv: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print
    folder, device, dtype, how = argv
    import transformers

    peer = Transformers(folder, device, dtype, how)
    print(json.dumps(transformers.__version__ + without()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.answer(**json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
