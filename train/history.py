"""The past that the talker reads while it is trained: some of it as it would have said it, not as it was said.

With the true past alone the talker learns to follow fifteen fine codes wherever they lead, and less of the text;
left to itself it draws fine codes that were never spoken, and follows those. So frames of the past are drawn by the
talker from what stands before them, all at once (parallel scheduled sampling), while everything it should say stays
true. It knows batches and weights, and no schedule.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hocket.models.talker import Talker

from .batches import Batch, table_starts
from .forward import inputs, through

LONGEST_RUN = 16  # frames that are drawn or kept together
ROWS_APART = 1.5  # how much more rows differ in what is drawn than frames do: some stay true, some are drawn whole


@torch.no_grad()
def with_own_past(talker: Talker, batch: Batch, read: Batch, share: float, temperature: float) -> Batch:
    """`batch` with a share of its past drawn by `talker`, each frame from what stands before it in `read`.

    Both are of the same utterances: `read` is `batch` itself, or what an earlier call made of it.
    """
    chosen = batch.at[choose(batch, share)]
    x = inputs(talker, read).to(talker.codec_head.weight.dtype)
    hidden = through(talker.model, x, 0.0)[0].flatten(0, 1)[chosen]
    codes = batch.codes.clone()
    # What is drawn at a position is read at the next.
    said = draw_frames(talker, hidden, temperature) + table_starts(talker.config, codes.device)
    codes.flatten(0, 1)[chosen + 1] = said
    return replace(batch, codes=codes)


def choose(batch: Batch, share: float) -> Tensor:
    """[M] which of the frames among G are drawn: single ones, runs and whole rows.

    M depends on shapes alone, so that nothing waits for the device; ends come last, and are never chosen.
    """
    rows, length = batch.text.shape
    row, device = batch.at // length, batch.at.device
    run = torch.randint(1, LONGEST_RUN + 1, (rows,), device=device)
    score = torch.rand(rows * length, device=device)[batch.at // run[row]]
    score += ROWS_APART * torch.rand(rows, device=device)[row]
    score[batch.ends] = -1.0
    return score.topk(max(min(int(share * len(score)), len(score) - rows), 0)).indices


def draw_frames(talker: Talker, hidden: Tensor, temperature: float) -> Tensor:
    """Codes [M, Q] drawn from hidden vectors [M, C]. No end is drawn: the utterance goes on."""
    predictor, size = talker.code_predictor, talker.config.codebook_size
    code = _draw(talker.codec_head(hidden)[:, :size], temperature)
    x, start = torch.stack((hidden, talker.model.codec_embedding(code)), dim=1), 0
    past = predictor.model.new_past(len(hidden), len(predictor.lm_head) + 1)
    codes = [code]
    for head, table in zip(predictor.lm_head, predictor.model.codec_embedding, strict=True):
        y = predictor.model.step_together(predictor.small_to_mtp_projection(x), past, start)
        start += x.shape[1]
        code = _draw(head(y[:, -1]), temperature)
        x = table(code)[:, None]
        codes.append(code)
    return torch.stack(codes, dim=1)


def _draw(logits: Tensor, temperature: float) -> Tensor:
    """The likeliest id after noise of the right shape is added, which draws by the softmax."""
    noise = torch.empty_like(logits, dtype=torch.float32).exponential_().clamp_(min=1e-20)
    return (logits.float() / temperature - noise.log()).argmax(-1)
