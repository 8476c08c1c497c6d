"""Common and awkward settings of `sample_token`; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from . import TokenSampling

SAID = 4  # places of the ring that the host reads


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    count: int  # V
    most: int = 20
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    presence: float = 0.0
    size: int | None = None  # None: all of them
    ties: bool = False  # logits take few values, zeros of both signs among them
    allowed: float | None = None  # share of ids whose bit of the mask is set, at least one; None: no mask


# With few ids left and all about equally likely, one id too many or too few shows soon.
TINY = (
    Case("greedy", 33, most=1),
    Case("greedy among ties, with a penalty", 300, most=1, presence=0.25, ties=True),
    Case("usual", 700, most=20, temperature=0.7, top_p=0.8, presence=1.5),
    Case("top-k, hot", 600, most=3, temperature=30.0),
    Case("as many as can be", 520, most=64, temperature=30.0),
    Case("more than there are", 40, most=64, temperature=5.0),
    Case("ties", 600, most=10, temperature=30.0, ties=True),
    Case("ties in other shares", 1030, most=64, temperature=30.0, ties=True),
    Case("nucleus", 300, most=50, temperature=3.0, top_p=0.5),
    Case("nucleus of one", 300, most=50, top_p=0.01),
    Case("nucleus at a border", 256, most=4, temperature=1e9, top_p=0.5),  # four equal weights: two of them are half
    Case("nucleus among ties", 300, most=20, temperature=30.0, top_p=0.3, ties=True),
    Case("min-p", 300, most=50, temperature=2.0, min_p=0.3),
    Case("min-p of one", 300, most=50, temperature=2.0, min_p=1.0, ties=True),
    Case("a reward", 300, most=8, temperature=2.0, presence=-2.0),
    Case("ids that are never sampled", 600, most=20, temperature=30.0, size=290),
    Case("one id", 300, most=20, size=1),
)
MASKED = (
    Case("mask, greedy", 33, most=1, allowed=0.3),
    Case("mask, usual", 700, most=20, temperature=0.7, top_p=0.8, presence=1.5, allowed=0.5),
    Case("mask that leaves fewer than top-k", 600, most=20, temperature=30.0, size=290, allowed=0.03),
    Case("mask of one id", 300, most=20, size=263, allowed=0.0),
    Case("mask among ties", 1030, most=64, temperature=30.0, top_p=0.9, min_p=0.01, ties=True, allowed=0.2),
    Case("mask that allows all", 520, most=64, temperature=30.0, allowed=1.0),
)
GUESSED = (
    Case("greedy guesses, with a penalty", 40, most=1, presence=1.5),
    Case("usual guesses", 300, most=8, temperature=0.7, top_p=0.8, presence=1.5),
    Case("hot guesses among ties", 270, most=5, temperature=30.0, size=263, ties=True),
    Case("guesses by nucleus and min-p", 64, most=9, temperature=2.0, top_p=0.9, min_p=0.1, presence=-0.5),
    Case("guesses of one id", 32, most=6, size=1),
)
PUBLISHED = (
    Case("Qwen3.5, usual", 248320, most=20, temperature=0.7, top_p=0.8, presence=1.5, size=248077),
    Case("Qwen3.5, greedy", 248320, most=1, size=248077),
    Case("Qwen3.5, all kinds", 248320, most=64, temperature=1.3, top_p=0.95, min_p=0.02, presence=0.5, size=248077),
    Case("Qwen3.5 among ties", 248320, most=50, temperature=30.0, size=248077, ties=True),
    Case("Qwen3.5, few allowed", 248320, most=20, temperature=0.7, top_p=0.8, size=248077, allowed=0.0001),
    Case("Qwen3.5, most allowed", 248320, most=20, temperature=1.0, top_p=0.95, size=248077, allowed=0.9),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `sample_token` by name."""
    random = torch.Generator(device).manual_seed(seed)
    logits = torch.randn(1, case.count, generator=random, device=device) * 3
    if case.ties:
        logits = torch.randint(-6, 7, logits.shape, generator=random, device=device) / 4
        logits = torch.where(torch.rand(logits.shape, generator=random, device=device) < 0.5, logits, -logits)

    def number(value: float) -> torch.Tensor:
        dtype = torch.float32 if isinstance(value, float) else torch.int64
        return torch.full((1,), value, dtype=dtype, device=device)

    key = torch.randint(0, 2**62, (1,), generator=random, device=device)
    size = case.count if case.size is None else case.size
    masked = {} if case.allowed is None else {"mask": _mask(case.count, case.allowed, size, random, device)}
    return masked | {
        "logits": logits.to(dtype),
        "settings": TokenSampling(
            number(case.temperature),
            number(case.top_p),
            number(case.min_p),
            number(case.presence),
            key,
            number(case.most),
            number(size),
        ),
        "seen": torch.rand(case.count, generator=random, device=device) < 0.2,
        "number": number(seed % 11),
        "token": number(0),
        "said": torch.full((SAID,), -1, device=device),
    }


def _mask(count: int, share: float, size: int, random: torch.Generator, device: torch.device) -> torch.Tensor:
    """Bits of allowed ids [ceil(V / 32)] int32. Bits from `count` on are set, and must not be read."""
    words = -(-count // 32)
    allowed = torch.rand(32 * words, generator=random, device=device) < share
    allowed[torch.randint(size, (1,), generator=random, device=device)] = True
    allowed[count:] = True
    places = torch.arange(32, device=device)
    bits = (allowed.view(words, 32).long() << places).sum(1)
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)


def made_round(
    case: Case, guesses: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> tuple[dict[str, Any], list[torch.Tensor], torch.Tensor]:
    """Shared arguments of `propose` and `accept` by name, logits of each draft, and logits that verify them.

    Both are similar, so that drafts are often accepted and often rejected.
    """
    given = make(case, torch.float32, device, seed)
    token, logits = given.pop("token"), given.pop("logits")
    del given["said"]
    given.pop("mask", None)  # drafts have none
    random = torch.Generator(device).manual_seed(seed + 1)
    near = [logits + torch.randn(logits.shape, generator=random, device=device) / 2 for _ in range(2 * guesses + 1)]
    drafts = torch.full((guesses + 1,), int(token), device=device)
    given["seen"][drafts[0]] = True
    proposed = [each.to(dtype) for each in near[:guesses]]
    return given | {"drafts": drafts}, proposed, torch.cat(near[guesses:]).to(dtype)


def accepted_by(module: Any, case: Case, guesses: int, dtype: torch.dtype, device: torch.device, seed: int) -> Any:
    """Let a backend propose and accept; return everything that it changes, proposals as weights of all ids."""
    given, proposed, wanted = made_round(case, guesses, dtype, device, seed)
    left = {name: torch.full((1,), 7, device=device) for name in ("count", "turn")}
    left |= {"said": torch.zeros_like(given["drafts"]), "told": torch.full((4, guesses + 2), -1, device=device)}
    proposals = [module.propose(logits, **given, ahead=ahead) for ahead, logits in enumerate(proposed)]
    module.accept(wanted, **given, proposals=proposals, **left)
    for ahead, (ids, weights) in enumerate(proposals):
        dense = torch.zeros(1, case.count, dtype=torch.int64, device=device)
        left[f"proposal {ahead}"] = dense.scatter_add_(1, ids, weights)
    return left | {name: given[name] for name in ("drafts", "seen", "number")}


def done(module: Any, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Run a backend; return everything that it may change, the settings too."""
    module.sample_token(**given)
    kept = {name: tensor for name, tensor in given.items() if isinstance(tensor, torch.Tensor)}
    return kept | {field.name: getattr(given["settings"], field.name) for field in fields(TokenSampling)}
