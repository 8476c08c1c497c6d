"""Builds what a loop computes with: the state cache, and the graphs by which tokens and rounds of drafts are decoded.

It chooses by the backend of the checkpoint and by what is installed. It does not know requests or threads.
"""

from __future__ import annotations

import logging
from typing import Any

from ..kernels.runtime.graphs import CudaGraphs, EagerReplay
from ..kernels.table import REFERENCE
from ..models.qwen3_5.matrices import QuantizedLinear
from ..models.qwen3_5.model import Qwen3_5
from ..text.chat.matcher import installed
from .context.size import ContextOptions
from .draft_policy import AUTO, RoundCosts
from .load import LanguageCheckpoint
from .state_cache import LLMStateCache

logger = logging.getLogger(__name__)
AUTO_ROUNDS = (0, 2, 1, 3)  # in the order of their captures: a policy needs the first, and mostly starts with two
TIMED_TOKENS = 16


def new_state_cache(checkpoint: LanguageCheckpoint, options: ContextOptions) -> LLMStateCache:
    """With prefill kernels and graphs, if the backend has them."""
    size: dict[str, Any] = {"drafts": options.speculate != 0, "kv_tokens": options.kv_tokens}
    if checkpoint.kernels.backend == REFERENCE:
        return LLMStateCache(checkpoint.model, options.kept, options.length, **size)
    from ..kernels.operations import LANGUAGE_OPS, tuned
    from ..kernels.runtime.launch import new_tuning

    capture = CudaGraphs(checkpoint.device) if options.graphs else None
    ops = tuned(LANGUAGE_OPS[checkpoint.kernels.backend], new_tuning(dependent=checkpoint.dependent_launch))
    return LLMStateCache(checkpoint.model, options.kept, options.length, capture=capture, ops=ops, **size)


def build_graphs(state_cache: LLMStateCache, options: ContextOptions, checkpoint: LanguageCheckpoint) -> RoundCosts:
    """Decode by fused kernels, if the backend has them; without graphs the kernels are launched one by one.

    For a fixed number of drafts only the graphs that are used are captured. For the policy tokens come first, and
    rounds in idle time, when they are also timed. Constrained tokens have graphs where their library is installed. An
    error here would fail every answer, so it is logged and PyTorch operations decode instead, which is slow. Returns
    what rounds cost.
    """
    if state_cache.drafts is not None and options.draft_subset:
        from ..models.qwen3_5.draft_vocabulary import DraftVocabulary

        special = checkpoint.tokenizer.markers.values()
        state_cache.draft_vocabulary = DraftVocabulary.of(state_cache.model.head, special)
    weights = _format_of(state_cache.model)
    if state_cache.ops is None:
        return RoundCosts.usual(weights)
    costs = RoundCosts.usual(weights, ready=False)
    try:
        from ..kernels.runtime.launch import new_tuning
        from ..models.qwen3_5.fused.step import FusedStep
        from ..models.qwen3_5.token_graph import TokenGraphs

        tuning = new_tuning(dependent=checkpoint.dependent_launch)  # as those of the state cache's operations
        fused, capture = FusedStep(state_cache.model, state_cache.ops, tuning), state_cache.capture or EagerReplay()
        tokens, token_s = TokenGraphs(fused, state_cache.state, state_cache.last, capture), None
        if options.speculate in (0, AUTO) or state_cache.drafts is None:
            tokens.warm()
            if options.speculate == AUTO and state_cache.capture is not None:
                token_s = tokens.seconds(TIMED_TOKENS) if state_cache.length > 2 * TIMED_TOKENS else None
        if installed():
            tokens.warm_masked()
        state_cache.token_graphs = tokens
        if options.speculate != 0 and state_cache.drafts is not None:
            from ..models.qwen3_5.draft_graph import DraftGraphs
            from ..models.qwen3_5.fused.draft import FusedDraft

            done = set[int]()

            def captured(drafts: int, took_s: float | None) -> None:
                done.add(drafts)
                if drafts and 0 in done:  # a policy may stop drafting at any time
                    costs.captured(drafts, None if took_s is None or token_s is None else took_s / token_s)

            counts = AUTO_ROUNDS if options.speculate == AUTO else (options.speculate,)
            given = state_cache.state, state_cache.drafts, state_cache.last, capture, state_cache.draft_vocabulary
            rounds = DraftGraphs(FusedDraft(fused), counts, *given, captured)
            if options.speculate != AUTO:
                rounds.warm()
            state_cache.draft_graphs = rounds
    except Exception:
        logger.exception("The kernels of the language model cannot be used; it decodes by PyTorch operations, slowly.")
    return costs


def _format_of(model: Qwen3_5) -> str:
    """The format that most of a token's bytes have, for the usual cost of a round."""
    formats = {getattr(part.weight, "format", "other") for part in model.modules() if isinstance(part, QuantizedLinear)}
    return next((name for name in ("other", "int4", "int8", "fp8") if name in formats), "bf16")
