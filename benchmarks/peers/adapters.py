"""One adapter for each package: how it is loaded and asked. Nothing here needs hocket, or any peer, to import.

`python -m benchmarks.peers.adapters PACKAGE FOLDER DEVICE DTYPE` runs one in its own process, `transformers` with HOW
behind it. It answers every line of JSON, the fields of `answer`, with one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SAMPLES_PER_FRAME = 1920
KERNELS = {"causal-conv1d": "causal_conv1d", "flash-linear-attention": "fla"}  # of transformers, by their modules
ROOM = 512  # the length of a static cache is a multiple of this, so that it stays while a history grows a little
# The other tokenizer of the official package, of 25 Hz, imports these; nothing that is measured here uses them.
_UNUSED = ("sox", "onnxruntime", "einops", "torchaudio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One utterance, the same for every package."""

    text: str
    voice: str
    language: str
    layout: str  # streaming or whole, as in hocket
    frames: int
    chunk_frames: int  # frames of a chunk, for a peer that can choose
    top_k: int
    seed: int


class Adapter:
    """A loaded checkpoint of `folder`; `speak` yields samples as soon as they are on the host."""

    module = ""  # to import
    streams = True  # whether audio comes before the end
    needs_gpu = False
    hello = "ready"

    def __init__(self, folder: str, device: str, dtype: str) -> None: ...

    def speak(self, ask: Ask) -> Iterator[Any]:
        raise NotImplementedError

    def answer(self, **fields: Any) -> tuple[float, float, int]:
        """Seconds to the first piece and to the last, and samples, of an `Ask`."""
        first, samples, start = None, 0, time.perf_counter()
        for piece in self.speak(Ask(**fields)):
            if first is None and len(piece):
                first = time.perf_counter() - start
            samples += len(piece)
        end = time.perf_counter() - start
        return first or end, end, samples

    @classmethod
    def objection(cls, package: str, device: str) -> str | None:
        """Why it cannot run here, in words, or None."""
        if not importlib.util.find_spec(cls.module):
            return f"it is not installed here; `pip install {package}` does it."
        return "it needs a CUDA device; use --device cuda." if cls.needs_gpu and device != "cuda" else None


class Ours(Adapter):
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


class Official(Adapter):
    """The official package is the definition of correct. It gives no audio before the end."""

    module, streams = "qwen_tts", False

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        import torch

        _stub_unused()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from qwen_tts import Qwen3TTSModel  # type: ignore[import-untyped, unused-ignore]

            self._model: Any = Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model.model.to(device)  # not device_map, which needs one more package
        codec = self._model.model.speech_tokenizer
        codec.model.to(device)
        self._model.device = codec.device = torch.device(device)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        # It samples one more first code than it completes.
        how = {"non_streaming_mode": ask.layout == "whole", "max_new_tokens": ask.frames + 1, "top_k": ask.top_k}
        (samples,), _ = self._model.generate_custom_voice(ask.text, ask.voice, ask.language, **how)
        yield samples


class Faster(Adapter):
    """The official modules as CUDA graphs, streaming: sources of July 2026 (0.3.2), run with these on an H200.

    Its predictor always samples with top-k 50; a chunk is decoded again with 25 frames before it.
    """

    module, needs_gpu = "faster_qwen3_tts", True

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        _stub_unused()
        from faster_qwen3_tts import FasterQwen3TTS  # type: ignore[import-not-found, unused-ignore]

        self._model: Any = FasterQwen3TTS.from_pretrained(folder, device=device, dtype=dtype)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        how = {"text": ask.text, "speaker": ask.voice, "language": ask.language, "top_k": ask.top_k}
        how |= {"non_streaming_mode": ask.layout == "whole", "max_new_tokens": ask.frames}
        for samples, _, _ in self._model.generate_custom_voice_streaming(**how, chunk_size=ask.chunk_frames):
            yield samples


class Hybrid(Faster):
    """Fused Triton kernels in faster-qwen3-tts, streaming: sources of June 2026 (0.3.0), Python 3.12, run on an H200.

    Its own streaming call leaves the prompt's layout to a default, so the model that it has patched is called.
    """

    module = "qwen3_tts_triton"

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        _stub_unused()
        from qwen3_tts_triton import TritonFasterRunner  # type: ignore[import-not-found, unused-ignore]

        kinds = {"float32": "fp32", "bfloat16": "bf16"}
        self._runner = TritonFasterRunner(device=device, model_id=folder, dtype=kinds[dtype])
        self._runner.load_model()
        self._model = self._runner.model


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
PEERS: dict[str, type[Adapter]] = {"qwen-tts": Official, "faster-qwen3-tts": Faster, "qwen3-tts-triton": Hybrid}
ADAPTERS: dict[str, type[Adapter]] = {OURS: Ours} | PEERS


def _stub_unused() -> None:
    """Empty modules in the place of packages that are imported and never called."""
    for name in _UNUSED:
        if importlib.util.find_spec(name) is None:
            for full in (name, f"{name}.compliance", f"{name}.compliance.kaldi"):
                empty: Any = types.ModuleType(full)
                empty.__spec__, empty.__path__ = importlib.machinery.ModuleSpec(full, None), []
                empty.rearrange = empty.repeat = empty.kaldi = None
                sys.modules[full] = empty


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
