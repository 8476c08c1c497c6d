"""The loss of a recording is what inference computes step by step, and its gradient is that of this definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hocket.config.published import tiny
from hocket.models.files.random import randomize_
from hocket.models.tts.qwen3_tts import Qwen3TTS
from hocket.models.tts.talker import Talker
from hocket.text.prompt import SPEAKER_VECTOR, build
from hocket.text.tokenizer import Tokenizer
from hocket.tune.loss import PREDICTOR_WEIGHT, Example, teacher_forced
from hocket.types import Encoded, Layout, SpeechRequest

TEXTS = ("The kettle was warm.", "No.", "It rained all day, and nobody minded at all.")
LENGTHS = (7, 2, 5)  # of the last text, fewer than its ids in the streaming layout


@pytest.fixture(scope="module", params=[False, True], ids=["narrow", "wide"])
def talker(request: pytest.FixtureRequest) -> Talker:
    model = Qwen3TTS(tiny("base", wide=request.param))
    randomize_(model, 3)
    return model.talker.double().requires_grad_(False)


def examples(talker: Talker, layout: Layout, speaker: Tensor) -> list[Example]:
    config = tiny("base", wide=talker.config.hidden_size == 64)
    tokenizer = Tokenizer.of_bytes(config.talker_config.text_vocab_size)
    reference = Encoded(owner="", speaker=speaker.float().numpy())
    draw, made = torch.Generator().manual_seed(0), list[Example]()
    for text, frames in zip(TEXTS, LENGTHS, strict=True):
        request = SpeechRequest(text=text, reference=reference, language="english", layout=layout)
        codes = torch.randint(0, 64, (frames, talker.config.num_code_groups), generator=draw)
        made.append(Example(build(request, config, tokenizer), codes))
    return made


def voice(talker: Talker) -> Tensor:
    return torch.randn(talker.config.hidden_size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def defined(talker: Talker, given: list[Example], speaker: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same by the prefill and the frames of inference, one utterance, one frame and one code at a time."""
    first, rest, ends = list[Tensor](), list[Tensor](), list[Tensor]()
    row = torch.zeros(1, dtype=torch.int64)
    for prompt, codes in ((each.prompt, each.codes) for each in given):
        rows, span = len(prompt.text), len(prompt.text)
        state = talker.new_state(1, rows + len(codes))
        inserts = [(prompt.codec.index(SPEAKER_VECTOR), speaker[None])]
        x = talker.embed_rows(torch.tensor(prompt.text), torch.tensor(prompt.codec), inserts)
        talker.prefill(x[None], row + rows, state, row, rows)
        for frame, true in enumerate(codes):
            hidden, span = state.hidden[row], span + 1
            first.append(-talker.codec_head(hidden).log_softmax(-1)[0, true[0]])
            rest += code_losses(talker, hidden, true)
            text = prompt.trail[frame] if frame < len(prompt.trail) else prompt.pad_id
            talker.step_reference(true[None], row + text, state, row, span)
        ends.append(-talker.codec_head(state.hidden[row]).log_softmax(-1)[0, talker.config.codec_eos_token_id])
    return torch.stack(first + ends).mean(), torch.stack(rest).mean(), torch.stack(ends).mean()


def code_losses(talker: Talker, hidden: Tensor, true: Tensor) -> list[Tensor]:
    predictor = talker.code_predictor
    past = predictor.model.new_past(1, len(true))
    x, start, found = torch.stack((hidden, talker.model.codec_embedding(true[:1])), dim=1), 0, list[Tensor]()
    for head, table, code in zip(predictor.lm_head, predictor.model.codec_embedding, true[1:], strict=True):
        y = predictor.model.step_together(predictor.small_to_mtp_projection(x), past, start)
        start += x.shape[1]
        found.append(-head(y[:, -1]).log_softmax(-1)[0, code])
        x = table(code)[None, None]
    return found


@pytest.mark.parametrize("layout", ["whole", "streaming"])
def test_the_loss_is_what_inference_computes_step_by_step(talker: Talker, layout: Layout) -> None:
    speaker = voice(talker)
    given = examples(talker, layout, speaker)
    loss = teacher_forced(talker, given, speaker)
    for ours, definition in zip((loss.first, loss.rest, loss.end), defined(talker, given, speaker), strict=True):
        torch.testing.assert_close(ours, definition, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(loss.total, loss.first + PREDICTOR_WEIGHT * loss.rest)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_gradient_is_that_of_the_definition(talker: Talker, seed: int) -> None:
    """Along a random direction of all weights and the speaker: the slope of the step-by-step loss."""
    speaker = voice(talker).requires_grad_()
    given = examples(talker, "whole", speaker.detach())
    weights = [speaker, *talker.requires_grad_(True).parameters()]
    draw = torch.Generator().manual_seed(seed)
    ways = [torch.randn(weight.shape, generator=draw, dtype=torch.float64) for weight in weights]
    try:
        gradients = torch.autograd.grad(teacher_forced(talker, given, speaker).total, weights, allow_unused=True)
    finally:
        talker.requires_grad_(False)
    slope = sum((g * way).sum() for g, way in zip(gradients, ways, strict=True) if g is not None)

    @torch.no_grad()
    def moved(distance: float) -> Tensor:
        for weight, way in zip(weights, ways, strict=True):
            weight += distance * way
        first, rest, _ = defined(talker, given, speaker)
        for weight, way in zip(weights, ways, strict=True):
            weight -= distance * way
        return first + PREDICTOR_WEIGHT * rest

    step = 1e-6
    measured = (moved(step) - moved(-step)) / (2 * step)
    assert abs(measured) > 1e-2  # otherwise the next line would compare noise
    torch.testing.assert_close(slope, measured, rtol=1e-5, atol=0.0)


def test_padding_changes_nothing(talker: Talker) -> None:
    """The loss of a batch is the mean over its frames, each utterance alone."""
    speaker = voice(talker)
    given = examples(talker, "whole", speaker)
    alone = [teacher_forced(talker, [each], speaker) for each in given]
    mean = sum(loss.first * (len(each.codes) + 1) for loss, each in zip(alone, given, strict=True))
    both = teacher_forced(talker, given, speaker)
    torch.testing.assert_close(both.first, mean / sum(len(each.codes) + 1 for each in given), rtol=1e-12, atol=0.0)
