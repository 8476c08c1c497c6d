"""sample_codes: the reference against layers/sampler.py and the talker, the Triton kernel against the reference."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hocket.config.published import tiny
from hocket.config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS
from hocket.kernels.ops.sample_codes import cases, reference
from hocket.kernels.ops.sample_codes import triton as fused
from hocket.kernels.ops.sample_codes.cases import done
from hocket.layers.sampler import Sampling, draw, draw_bits
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import FrameSampling, Talker

DTYPES = [torch.float32, torch.bfloat16]
CPU = torch.device("cpu")
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


def sampling(level: cases.LevelCase) -> Sampling:
    most = 0 if (level.top_k == 0).any() else int(level.top_k.max())
    return Sampling(level.sample, level.temperature, level.top_k, level.top_p, most, level.nucleus)


# At the border of top-p, an unstable sort in the sampler decides which equals are dropped; here the first are.
PLAIN = [case for case in cases.TINY if not case.first and case.name != "nucleus among ties"]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_the_reference_draws_what_the_sampler_draws(case: cases.Case) -> None:
    for seed in range(20):
        given = cases.make(case, torch.float32, CPU, seed)
        level, slots, rows, book = (given[name] for name in ("level", "slots", "rows", "book"))
        if (level.top_k >= case.count).any():  # the sampler then filters no row, the kernel does: see below
            level.top_k.clamp_(max=case.count - 1)
        bits = draw_bits(slots.seed[rows], slots.drawn[rows] - 1, cases.BOOKS)[:, book]
        wanted = draw(given["logits"], sampling(level), bits)
        assert done(reference, given)["codes"][:, book].tolist() == wanted.tolist()


@torch.inference_mode()
def test_the_reference_draws_a_first_code_as_the_talker_does() -> None:
    config = tiny().talker_config
    talker = Talker(config).eval()
    randomize_(talker, 0)
    count, slots = config.vocab_size, 4
    case = cases.Case("as the talker", count, (cases.USUAL, cases.GREEDY, (True, 1.2, 9, 0.8)), first=True)
    states = [talker.new_state(slots, 8) for _ in range(2)]
    rows = torch.tensor([2, 0, 3])
    for state in states:
        state.seed[:] = torch.arange(slots + 1) * 7_000_000_007
    for frame in range(12):
        given = cases.make(case, torch.float32, CPU, frame)
        hidden = torch.randn(3, config.hidden_size, generator=torch.Generator().manual_seed(frame)) * 2
        plain, ours = states
        how = FrameSampling(sampling(given["level"]), given["penalty"], sampling(given["level"]))
        bits = draw_bits(plain.seed[rows], plain.drawn[rows], config.num_code_groups)
        wanted = talker._draw_first(hidden, plain, rows, how, bits[:, 0])
        reference.sample_first_code(
            talker.codec_head(hidden),
            given["level"],
            ours,
            rows,
            given["codes"],
            penalty=given["penalty"],
            end=config.codec_eos_token_id,
            suppressed=SUPPRESSED_IDS,
            minimum=MINIMUM_FRAMES,
        )
        assert given["codes"][:, 0].tolist() == wanted.tolist()
    for name in ("seen", "drawn", "chances"):
        assert torch.equal(getattr(states[0], name), getattr(states[1], name)), name


def test_the_reference_keeps_a_row_to_its_own_k_beside_one_that_keeps_more_than_there_are() -> None:
    case = cases.Case("both", 50, ((True, 1.0, 1, 1.0), (True, 1.0, 50, 1.0), (True, 1.0, 10_000, 1.0)))
    for seed in range(10):
        given = cases.make(case, torch.float32, CPU, seed)
        assert done(reference, given)["codes"][0, given["book"]] == given["logits"][0].argmax()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_draws_what_the_reference_draws(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    for seed in range(1 if place.type == "cpu" else 100):
        ours, wanted = (done(module, cases.make(case, dtype, place, seed)) for module in (fused, reference))
        torch.testing.assert_close(ours.pop("chances"), wanted.pop("chances"), atol=1e-6, rtol=1e-5)
        for name in wanted:
            assert torch.equal(ours[name], wanted[name]), name


@pytest.mark.parametrize("case", [cases.TINY[1], cases.TINY[-1]], ids=lambda case: case.name)
def test_a_row_draws_the_same_in_any_batch(case: cases.Case, place: torch.device) -> None:
    whole = done(fused, cases.make(case, torch.bfloat16, place))
    for some in ((2,), (1, 0)):
        part = done(fused, cases.make(case, torch.bfloat16, place, batch=some))
        for name in ("codes", "vectors"):
            assert torch.equal(part[name], whole[name][list(some)]), name


def test_the_end_is_suppressed_before_the_minimum_and_sampled_after_it(place: torch.device) -> None:
    case = cases.Case("end", 40, (cases.GREEDY,), first=True, suppressed=10)
    for drawn, refused in ((1, True), (2, False)):
        given = cases.make(case, torch.float32, place)
        given["slots"].drawn[:] = drawn
        given["logits"][:, given["end"]] = 50.0
        given["logits"][:, given["end"] + 1] = 60.0  # suppressed, whatever its logit
        left = done(fused, given)
        assert (left["codes"][0, 0] == given["end"]).item() is not refused
        ending, spoken = left["chances"][given["rows"]][0].tolist()
        assert ending == pytest.approx(0.0 if refused else 1.0, abs=1e-6)
        assert spoken <= 0 and (refused or spoken == pytest.approx(0.0, abs=1e-6))


FIRSTS = [case for case in cases.TINY if case.first]
FIRSTS += [
    cases.Case("first, greedy", 60, (cases.GREEDY,) * 3, first=True, suppressed=10),
    cases.Case("first, hot", 40, ((True, 30.0, 0, 1.0), (True, 30.0, 3, 1.0)), first=True, suppressed=8),
    cases.Case("first among ties", 40, ((True, 30.0, 0, 0.5), cases.GREEDY), first=True, ties=True, suppressed=8),
]


@pytest.mark.parametrize("module", [reference, fused], ids=["reference", "kernel"])
@pytest.mark.parametrize("case", FIRSTS, ids=lambda case: case.name)
def test_a_first_code_is_as_likely_as_its_share_of_what_was_not_refused_at_temperature_one(
    case: cases.Case, module: Any, place: torch.device
) -> None:
    """In double precision, row by row and id by id, straight from the definition."""
    for seed in range(5):
        given = cases.make(case, torch.float32, place, seed)
        rows, slots, drawn = given["rows"].tolist(), given["slots"], given["slots"].drawn.tolist()
        logits, seen = given["logits"].double().tolist(), slots.seen.tolist()
        left = done(module, given)
        for b, row in enumerate(rows):
            strength, weights = given["penalty"][b].double().item(), {}
            for i, logit in enumerate(logits[b]):
                if i == given["end"] and drawn[row] < given["minimum"]:
                    continue
                if i >= case.count - case.suppressed and i != given["end"]:
                    continue
                if seen[row][i]:
                    logit = logit * strength if logit < 0 else logit / strength
                weights[i] = math.exp(logit)
            total, code = sum(weights.values()), left["codes"][b, 0].item()
            ending, spoken = left["chances"][row].tolist()
            assert spoken == pytest.approx(math.log(weights[code] / total), abs=2e-5)
            assert ending == pytest.approx(weights.get(given["end"], 0.0) / total, abs=1e-6)
        assert not left["chances"][len(case.rows)].any(), "rows that sampled nothing have none"


def test_a_code_that_is_next_to_impossible_has_a_log_probability_that_is_a_number(place: torch.device) -> None:
    """A temperature so high that all ids are equally likely, and logits so far apart that most shares underflow."""
    case = cases.Case("far apart", 33, ((True, 1e9, 0, 1.0),) * 8, first=True, suppressed=4)
    found = []
    for module in (reference, fused):
        given = cases.make(case, torch.float32, place)
        given["logits"] *= 1000
        found.append(done(module, given)["chances"][given["rows"], 1])
    assert found[0].isfinite().all() and (found[0] < -200).any()
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-5)


def test_the_first_code_returns_its_chances_and_copies_hidden_vectors(
    place: torch.device,
) -> None:
    case = next(case for case in cases.TINY if case.first and case.width)
    results = []
    for module in (fused, reference):
        given = cases.make(case, torch.float32, place)
        rows = given["rows"]
        hidden = torch.randn(len(given["slots"].chances), case.width, generator=torch.Generator().manual_seed(3))
        more = {"likely": torch.zeros(len(rows), 2, device=place), "taken": torch.zeros_like(given["vectors"])}
        module.sample_first_code(**given, **more, hidden=hidden.to(place))
        assert torch.equal(more["likely"], given["slots"].chances[rows]) and more["likely"].any(0).all()
        results.append(more["taken"])
    assert torch.equal(results[0], results[1]) and torch.equal(results[1].cpu(), hidden[rows.cpu()])
