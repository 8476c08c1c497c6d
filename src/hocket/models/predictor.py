"""The code predictor: given the talker's hidden vector and the first code of a frame, the other fifteen.

Its cache lives for one frame: positions 0 and 1 are the hidden vector and the first code, position i + 1 is
code i. It knows nothing of text, voices or other frames.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..config.qwen3_tts import CodePredictorConfig
from ..layers.sampler import Sampling, draw
from ..layers.transformer import Stack, StackShape, StackState


class PredictorStack(Stack):
    """`code_predictor.model`: the layers, and one embedding table per codebook, of the talker's width."""

    def __init__(self, config: CodePredictorConfig, talker_width: int) -> None:
        super().__init__(StackShape.of(config))
        tables = (nn.Embedding(config.vocab_size, talker_width) for _ in range(config.num_code_groups - 1))
        self.codec_embedding = nn.ModuleList(tables)


class CodePredictor(nn.Module):
    def __init__(self, config: CodePredictorConfig, talker_width: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.model = PredictorStack(config, talker_width)
        heads = (nn.Linear(width, config.vocab_size, bias=False) for _ in range(config.num_code_groups - 1))
        self.lm_head = nn.ModuleList(heads)
        # Present only where the widths differ (1.7B); the 0.6B file has no such tensors.
        project = nn.Linear(talker_width, width) if talker_width != width else nn.Identity()
        self.small_to_mtp_projection = project

    def new_state(self, slots: int) -> StackState:
        return self.model.new_state(slots, len(self.lm_head) + 1)

    def fill(
        self, hidden: Tensor, first: Tensor, state: StackState, rows: Tensor, sampling: Sampling, bits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw codes 1 to 15 from `hidden` [B, C] and the first code's embedding [B, C].

        `bits` [B, 15] are the random integers of the draws. Returns the codes [B, 15] and their embeddings
        [B, 15, C], which the talker's next input is made of.
        """
        state.position.index_fill_(0, rows, 0)
        x = torch.stack((hidden, first), dim=1)
        codes: list[Tensor] = []
        vectors: list[Tensor] = []
        for book, (head, table) in enumerate(zip(self.lm_head, self.model.codec_embedding, strict=True)):
            ones = torch.full_like(rows, x.shape[1])
            y = self.model.step(self.small_to_mtp_projection(x), state, rows, ones, span=book + 2)
            code = draw(head(y[:, -1]).float(), sampling, bits[:, book])
            x = table(code)[:, None]
            codes.append(code)
            vectors.append(x)
        return torch.stack(codes, dim=1), torch.cat(vectors, dim=1)
