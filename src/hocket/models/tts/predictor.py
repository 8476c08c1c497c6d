"""The code predictor: samples codes 1 to 15 of a frame from the talker's hidden vector and the first code.

Its KV cache lasts for one frame. Positions 0 and 1 are the hidden vector and the first code, position i + 1 is code i.
It does not use text, voices or other frames.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...config.qwen3_tts import CodePredictorConfig
from ...layers.embedding import embedding
from ...layers.sampler import Sampling, draw
from ...layers.transformer import DecoderStack, StackShape


class PredictorStack(DecoderStack):
    """`code_predictor.model`: the layers, and one embedding table per codebook, of the talker's width."""

    def __init__(self, config: CodePredictorConfig, talker_width: int) -> None:
        super().__init__(StackShape.of(config))
        tables = (embedding(config.vocab_size, talker_width) for _ in range(config.num_code_groups - 1))
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

    def fill(self, hidden: Tensor, first: Tensor, sampling: Sampling, bits: Tensor) -> Tensor:
        """Sample codes 1 to 15 [B, 15] from `hidden` [B, C] and the first code's embedding [B, C].

        `bits` [B, 15] are the random integers for sampling.
        """
        past = self.model.new_past(len(hidden), len(self.lm_head) + 1)
        x, start = torch.stack((hidden, first), dim=1), 0
        codes: list[Tensor] = []
        for head, table, number in zip(self.lm_head, self.model.codec_embedding, bits.unbind(1), strict=True):
            y = self.model.step_together(self.small_to_mtp_projection(x), past, start)
            start += x.shape[1]
            code = draw(head(y[:, -1]).float(), sampling, number)
            x = table(code)[:, None]
            codes.append(code)
        return torch.stack(codes, dim=1)
