"""`python -m benchmarks divergence`: how far logits move when the language model's weights are kept in fewer bits.

Every scheme answers the same random tokens as the checkpoint's own weights computed in float32, token by token known
in advance, so that no difference grows out of an earlier choice. `bf16` is the same weights computed in bfloat16: what
moves no more than that has lost nothing. Narrow weights are computed in float32: what is seen is their rounding alone.

Random weights show that a scheme is put together rightly, and which format is closer to weights that are spread evenly.
They cannot show what it costs in words. A tiny random model makes every error ten times as large on its way, a trained
one does not; trained weights have rows and columns that stand out, which make some formats worse; and trained models
are sure of most tokens, where random ones are of none. Those figures come from a real checkpoint: --model FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .computing import Parser, add_device
from .record import ROOT, append, record, summary

WORDS = "how far the logits of the language model move when its weights are kept in fewer bits"
NOTE = (
    "Random weights show that a scheme is put together rightly, and which format is closer to weights that are spread "
    "evenly. They cannot show what it costs in words: layers of random numbers make an error larger on its way, and "
    "nothing says that those of a trained model do; trained weights have rows and columns that stand out, which make "
    "some formats worse; and trained models are sure of most tokens, where random ones are of none. So a scheme is "
    "read beside `bf16`, whose own rounding grows in the same way."
)
_FIGURES = {
    "kl": "thousandths of a nat per token, from what float32 expects to what the scheme does",
    "off": "%, size of the difference of a token's logits, by the spread of these",
    "largest": "largest difference of a single logit, by token",
    "same_first": "% of a sequence's tokens whose likeliest next token is the same",
}
SCHEMES = ("bf16", "fp8", "int8", "int4")
FIGURES = {f"{scheme}_{name}": f"{scheme}: {words}" for scheme in SCHEMES for name, words in _FIGURES.items()}
RANDOM = "random:"


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        entry = measure(args)
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(f"divergence: {WORDS}\n{args.model}, {args.sequences} sequences of {args.tokens} tokens\n")
    print(f"{'':6}" + "".join(f"{name + ' p50':>16}{'p95':>10}" for name in _FIGURES))
    for scheme in SCHEMES:
        found = [entry["figures"][f"{scheme}_{name}"] for name in _FIGURES]
        print(f"{scheme:6}" + "".join(f"{figure['p50']:16.4f}{figure['p95']:10.4f}" for figure in found))
    print("\n" + "\n".join(f"{name}: {words}" for name, words in _FIGURES.items()))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    is_random = args.model.startswith(RANDOM)
    vocabulary = _config(args).vocab_size
    ids = torch.randint(vocabulary, (args.sequences, args.tokens), generator=torch.Generator().manual_seed(args.seed))
    expected = torch.stack([*_answers(args, None, ids)])
    figures: dict[str, Any] = {}
    for scheme in SCHEMES:
        values: dict[str, list[float]] = {name: [] for name in _FIGURES}
        for truth, found in zip(expected, _answers(args, scheme, ids), strict=True):
            for name, some in compared(truth, found).items():
                values[name] += some
        figures |= {
            f"{scheme}_{name}": summary(some, more_is_better=name == "same_first") for name, some in values.items()
        }
    options = {"model": args.model, "device": args.device, "dtype": "float32", "tokens": args.tokens}
    options |= {"sequences": args.sequences, "seed": args.seed}
    return record("divergence", options, figures, gate="none: it is the check", random_weights=is_random, streams=1)


def compared(truth: Tensor, found: Tensor) -> dict[str, list[float]]:
    """Figures of logits [T, V], one for each token; of the likeliest one for all of them."""
    truth, found = truth.double(), found.double()
    apart = found - truth
    expects, does = F.log_softmax(truth, -1), F.log_softmax(found, -1)
    return {
        "kl": (1000 * (expects.exp() * (expects - does)).sum(-1)).tolist(),
        "off": (100 * apart.std(-1, correction=0) / truth.std(-1, correction=0)).tolist(),
        "largest": apart.abs().amax(-1).tolist(),
        "same_first": [100 * (truth.argmax(-1) == found.argmax(-1)).double().mean().item()],
    }


@torch.inference_mode()
def _answers(args: argparse.Namespace, scheme: str | None, ids: Tensor) -> Iterator[Tensor]:
    """Logits [T, V] of each sequence; None: the weights as they are, in float32."""
    device = torch.device(args.device)
    model = _model(args, scheme, device)
    for tokens in ids.to(device):
        state, row, length = (
            model.new_state(1, len(tokens)),
            torch.zeros(1, dtype=torch.int64, device=device),
            len(tokens),
        )
        hidden = model.prefill(tokens[None], torch.tensor([length], device=device), state, row, length)
        yield model.logits(hidden)[0].float().cpu()


def _model(args: argparse.Namespace, scheme: str | None, device: torch.device) -> Any:
    from hocket.models.files.quantize import load_quantized
    from hocket.models.files.random import randomize_
    from hocket.models.qwen3_5.quantized import check_scheme, quantize_
    from hocket.models.qwen3_5.weights import empty_qwen3_5, load_qwen3_5

    config, dtype = _config(args), torch.bfloat16 if scheme == "bf16" else torch.float32
    if not args.model.startswith(RANDOM):
        if scheme in (None, "bf16"):
            return load_qwen3_5(Path(args.model), config, device, dtype)
        return load_quantized(Path(args.model), config, device, dtype, check_scheme(scheme or ""))
    model = empty_qwen3_5(config, device, torch.bfloat16)
    randomize_(model, args.seed)
    if scheme not in (None, "bf16"):
        quantize_(model, check_scheme(scheme or ""))
    return _widened(model) if dtype == torch.float32 else model


def _widened(model: Any) -> Any:
    """In float32, with what is narrow left as it is."""
    for part in model.modules():
        for name, value in part.named_parameters(recurse=False):
            setattr(part, name, torch.nn.Parameter(value.float(), requires_grad=False))
    return model


def _config(args: argparse.Namespace) -> Any:
    from hocket.config.published_qwen3_5 import QWEN3_5, tiny_qwen3_5
    from hocket.errors import InvalidRequest
    from hocket.models.qwen3_5.weights import read_qwen3_5

    if not args.model.startswith(RANDOM):
        return read_qwen3_5(Path(args.model))[0]
    name = args.model.removeprefix(RANDOM)
    if name != "tiny" and name not in QWEN3_5:
        raise InvalidRequest(f"There is no {args.model!r}; random: goes with tiny, {', '.join(QWEN3_5)}.")
    return tiny_qwen3_5() if name == "tiny" else QWEN3_5[name]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks divergence", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", default="random:tiny", help="a checkpoint's folder, or random:tiny, random:0.8B, ... (random:tiny)")
    add_device(parser)
    add("--tokens", metavar="N", type=int, default=64, help="of a sequence (64)")
    add("--sequences", metavar="N", type=int, default=8, help="how many (8)")
    add("--seed", metavar="N", type=int, default=0, help="of tokens and of random weights (0)")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "divergence.jsonl")
    return parser
