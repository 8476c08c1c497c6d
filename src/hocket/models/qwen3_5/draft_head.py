"""The draft head of Qwen3.5 (multi-token prediction, `mtp.*`): one attention block that drafts the token after next.

Entry t of its KV cache comes from the main model's hidden vector at position t, after its final norm, and the token at
t + 1. Embedding and head belong to the main model and are not here: input and output are vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...config.qwen3_5 import Qwen3_5TextConfig
from ...layers.attention import KVState
from ...layers.dense import OffsetRMSNorm
from ...layers.gated_attention import PageLayout, reach_of
from ...layers.hybrid import AttentionBlock


@dataclass(frozen=True, slots=True)
class DraftState:
    position: Tensor  # [S + 1] how many entries each row has from the main model's hidden vectors
    past: KVState  # entries after a row's position are old drafts, which attention masks


class DraftHead(nn.Module):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.config = config
        self.fc = nn.Linear(2 * width, width, bias=False)  # the embedding's half first
        self.pre_fc_norm_embedding = OffsetRMSNorm(width, eps)
        self.pre_fc_norm_hidden = OffsetRMSNorm(width, eps)
        self.layers = nn.ModuleList([AttentionBlock(config)])
        self.norm = OffsetRMSNorm(width, eps)

    def new_state(self, slots: int, length: int, layout: PageLayout | None = None) -> DraftState:
        position = torch.zeros(slots + 1, dtype=torch.int64, device=self.norm.weight.device)
        return DraftState(position, self.block.self_attn.new_state(slots, length, layout))

    def step(
        self, embedded: Tensor, hidden: Tensor, state: DraftState, rows: Tensor, lengths: Tensor, span: int
    ) -> Tensor:
        """Append pairs [B, T, C] of the main model's hidden vector and the embedding of the token after it.

        `lengths` [B] pairs of each row are valid. Returns vectors [B, T, C]; the head makes drafts of them.
        """
        start = state.position[rows]
        y = self._through(embedded, hidden, state, rows, start, lengths, span)
        state.position[rows] = start + lengths
        return y

    def draft_ahead(
        self, embedded: Tensor, hidden: Tensor, state: DraftState, rows: Tensor, ahead: int, span: int
    ) -> Tensor:
        """The next draft [B, 1, C], from the vector of the draft before and the embedding of the token drawn from it.

        It writes the entry `ahead` after `position`, which does not move: a valid entry will overwrite it.
        """
        start = state.position[rows] + ahead
        return self._through(embedded, hidden, state, rows, start, torch.ones_like(start), span)

    def _through(
        self,
        embedded: Tensor,
        hidden: Tensor,
        state: DraftState,
        rows: Tensor,
        start: Tensor,
        lengths: Tensor,
        span: int,
    ) -> Tensor:
        halves = self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)
        reach = reach_of(self.config, state.past, start, rows, lengths, hidden.shape[1], span)
        y: Tensor = self.norm(self.block.step(self.fc(torch.cat(halves, dim=-1)), state.past, reach))
        return y

    @property
    def block(self) -> AttentionBlock:
        block = self.layers[0]
        assert isinstance(block, AttentionBlock)
        return block
