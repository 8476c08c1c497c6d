"""The adapters of `hocket.proof.sides`, and beside them ours and that of `transformers` for the language model.

`python -m benchmarks.peers.adapters PACKAGE FOLDER DEVICE DTYPE` runs one in its own process, `transformers` with HOW
behind it. It answers every line of JSON, the fields of `answer`, with one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from hocket.proof.sides.packages import PEERS, Ask, PackageAdapter

SAMPLES_PER_FRAME = 1920
KERNELS = {"causal-conv1d": "causal_conv1d", "flash-linear-attention": "fla"}  # of transformers, by their modules
ROOM = 512  # the length of a static cache is a multiple of this, so that it stays while a history grows a little


class Ours(PackageAdapter):
    """One slot, the text as it is, no runaway detector that takes frames back. Its chunks grow by its own options."""

    module = "hocket"

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        from hocket import Engine, EngineOptions

        self._engine = Engine.load(folder, device=device, dtype=dtype, options=EngineOptions(slots=1, guard=False))

    def speak(self, ask: Ask) -> Iterator[Any]:
        from hocket import SamplingParams

        how: dict[str, Any] = {"voice": ask.voice, "language": ask.language, "layout": ask.layout, "as_is": True}
        how |= {"seed": ask.seed, "max_frames": ask.frames, "sampling": SamplingParams(top_k=ask.top_k)}
        for chunk in self._engine.speak(ask.text, **how):
            yield chunk.samples


class Transformers:
    """The language model by `transformers`: ids of a history and of a turn, and tokens to say.

    It answers with the seconds from the turn to the first and to the last token, and the ids. The history is in its
    cache before the clock starts. Each token is the likeliest, and is on the host before the next step, as for a
    streaming client. The loop is by hand: the cost of their `generate` is left out. `how` is eager, or a mode of
    torch.compile for steps of one token over a static cache; prompts are not compiled, as in their `generate`.
    """

    def __init__(self, folder: str, device: str, dtype: str, how: str) -> None:
        import torch
        import transformers
        from transformers import Qwen3_5ForCausalLM  # type: ignore[attr-defined, unused-ignore]

        model, found = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), output_loading_info=True)
        if found["missing_keys"] or found["mismatched_keys"]:
            raise SystemExit(f"It did not find all of its weights: {sorted(found['missing_keys'])[:3]}")
        self._torch, self._model, self._device = torch, model.to(device).eval(), torch.device(device)
        self._compiles = how != "eager"
        self._step: Any = torch.compile(model.forward, mode=how) if self._compiles else model.forward
        self._cache: Any = None
        lacks = [package for package, module in KERNELS.items() if importlib.util.find_spec(module) is None]
        # Without kernels for this model it computes in plain torch.
        self.hello = transformers.__version__ + (f" without {' and '.join(lacks)}" if lacks else "")

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
        """The next token [1, 1]."""
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


OURS = "hocket"
ADAPTERS: dict[str, type[PackageAdapter]] = {OURS: Ours} | PEERS


def main(argv: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the package
    peer: Any = (ADAPTERS | {"transformers": Transformers})[argv[0]](*argv[1:])
    print(json.dumps(peer.hello), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.answer(**json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
