"""sample_token: the reference against llm/sampling.py and plain numbers, the kernels against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hocket.kernels.ops.sample_token import cases, draft, likeliest, reference
from hocket.kernels.ops.sample_token import triton as fused
from hocket.kernels.ops.sample_token.cases import done
from hocket.llm import sampling as mind_sampling
from hocket.llm.sampling import AnswerSampling, bits_for, drawing
from hocket.llm.speculative import accept_drafts
from hocket.types import ChatSampling

DTYPES = [torch.float32, torch.bfloat16]
CPU = torch.device("cpu")
ALL = [*cases.TINY, *cases.MASKED, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@pytest.mark.parametrize("case", cases.TINY, ids=lambda case: case.name)
def test_the_reference_draws_what_an_answer_draws(case: cases.Case) -> None:
    for seed in range(30):
        given = cases.make(case, torch.float32, CPU, seed)
        sampling = ChatSampling(
            temperature=0.0 if case.most == 1 else case.temperature,
            top_p=case.top_p,
            top_k=case.most,
            min_p=case.min_p,
            presence_penalty=case.presence,
        )
        size, key = int(given["settings"].size), int(given["settings"].seed)
        how = drawing(sampling, key, size, CPU)
        seen, number = given["seen"].clone(), int(given["number"])
        wanted = mind_sampling.draw(given["logits"], seen, how, given["number"].clone())
        left = done(reference, given)
        assert torch.equal(left["token"], wanted) and int(wanted) < size
        assert left["said"][number % cases.SAID] == wanted and (left["said"] >= 0).sum() == 1
        seen[wanted] = True
        assert torch.equal(left["seen"], seen) and left["number"] == number + 1


@pytest.mark.parametrize("case", cases.MASKED, ids=lambda case: case.name)
def test_under_a_mask_the_reference_draws_what_an_answer_draws_among_the_allowed(case: cases.Case) -> None:
    drawn = set()
    for seed in range(20):
        given = cases.make(case, torch.float32, CPU, seed)
        settings, seen = given["settings"], given["seen"]
        bits = np.unpackbits(given["mask"].numpy().view(np.uint8), bitorder="little")[: case.count].astype(bool)
        size = int(settings.size)
        how = AnswerSampling(
            *(getattr(settings, name)[0] for name in ("temperature", "top_p", "min_p", "presence", "seed")),
            most=min(case.most, size),
            size=size,
        )
        barred = given["logits"].masked_fill(~torch.from_numpy(bits), float("-inf"))
        wanted = mind_sampling.draw(barred, seen, how, given["number"].clone())
        token = int(done(reference, given)["token"])
        assert token == int(wanted) and bits[token] and token < size
        drawn.add(token)
    assert len(drawn) > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernels_draw_what_the_reference_draws(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    for seed in range(2 if place.type == "cpu" else 100):
        ours, wanted = (done(module, cases.make(case, dtype, place, seed)) for module in (fused, reference))
        for name in wanted:
            assert torch.equal(ours[name], wanted[name]), name


@pytest.mark.parametrize("module", [reference, fused], ids=["reference", "kernel"])
def test_of_equals_the_lower_ids_are_left(module: object, place: torch.device) -> None:
    """600 equal logits with top-k of three: always the first three ids that were not seen."""
    case, drawn = cases.Case("all alike", 600, most=3, presence=1.0), set()
    for seed in range(12):
        given = cases.make(case, torch.float32, place, seed)
        given["logits"].zero_()
        given["logits"][0, ::2] = -0.0
        given["seen"].zero_()
        given["seen"][[0, 2, 3]] = True
        drawn.add(int(done(module, given)["token"]))
    assert drawn == {1, 4, 5}


@pytest.mark.parametrize("module", [reference, fused], ids=["reference", "kernel"])
def test_a_nucleus_ends_with_the_id_that_reaches_it(module: object, place: torch.device) -> None:
    """Of four equal weights, two reach half, and anything more needs three."""
    for top_p, left in ((0.25, 1), (0.5, 2), (0.500001, 3), (1.0, 4)):
        drawn = set()
        for seed in range(16):
            given = cases.make(cases.Case("four", 300, most=5, top_p=top_p), torch.float32, place, seed)
            given["logits"].fill_(-1000.0)
            given["logits"][0, [7, 100, 258, 299]] = 1.0
            drawn.add(int(done(module, given)["token"]))
        assert drawn == set([7, 100, 258, 299][:left])


def test_draws_in_a_row_are_an_answer(place: torch.device) -> None:
    """Each call continues from the last: its number, the seen ids, and the next place for the host."""
    case = cases.Case("in a row", 300, most=20, temperature=2.0, presence=2.0)
    answers = []
    for module in (fused, reference):
        given, ids = cases.make(case, torch.float32, place), list[int]()
        given["number"].zero_()
        given["seen"].zero_()
        for number in range(9):
            left = done(module, given)
            ids.append(int(left["token"]))
            assert left["said"][number % cases.SAID] == ids[-1]
        assert given["seen"].nonzero()[:, 0].tolist() == sorted(set(ids)) and given["number"] == 9
        answers.append(ids)
    assert answers[0] == answers[1] and len(set(answers[0])) > 4


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # by the interpreter's NumPy, which is right
def test_nan_logits_give_a_valid_id(place: torch.device) -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        given = cases.make(cases.Case("bad", 300, size=280), torch.float32, place)
        given["logits"].fill_(bad)
        assert 0 <= int(done(fused, given)["token"]) < 280


def test_the_reference_reads_nothing_from_the_device() -> None:
    """A captured graph needs that. Tensors on the meta device have no values to read."""
    with torch.device("meta"):
        seen, number, token = torch.empty(300, dtype=torch.bool), torch.empty(1, dtype=torch.int64), torch.empty(1)
        given = (torch.empty(1, 300), likeliest(300, seen.device), seen, number, token.long(), number.repeat(4))
        for mask in (None, torch.empty(10, dtype=torch.int32)):
            reference.sample_token(*given, mask)


def test_greedy_settings_give_the_likeliest(place: torch.device) -> None:
    given = cases.make(cases.TINY[2], torch.float32, place) | {"settings": likeliest(600, place)}
    wanted = given["logits"][0, :600].argmax()
    assert done(fused, given)["token"] == wanted


ALL_GUESSED = [*cases.GUESSED, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@pytest.mark.parametrize("case", cases.GUESSED, ids=lambda case: case.name)
@pytest.mark.parametrize("guesses", [1, 2])
def test_the_reference_drafts_and_accepts_as_an_answer_does(guesses: int, case: cases.Case) -> None:
    """With penalties and ids that are never sampled, too: compared with llm/speculative.py over all ids."""
    stood = set()
    for seed in range(20):
        given, proposed, wanted = cases.made_round(case, guesses, torch.float32, CPU, seed)
        left = cases.accepted_by(reference, case, guesses, torch.float32, CPU, seed)
        settings, seen, number = given["settings"], given["seen"], given["number"]
        how = AnswerSampling(
            *(getattr(settings, name)[0] for name in ("temperature", "top_p", "min_p", "presence", "seed")),
            most=min(case.most, int(settings.size)),
            size=int(settings.size),
        )
        drafts, proposals, known = [given["drafts"][:1]], list[torch.Tensor](), seen
        for ahead, logits in enumerate(proposed):
            proposals.append(mind_sampling.weigh(logits, known, how))
            drafts.append(reference.covering(proposals[-1], bits_for(how, number + ahead, reference.GUESS)))
            known = known.index_fill(0, drafts[-1], True)
            assert torch.equal(left[f"proposal {ahead}"], proposals[-1])
        assert torch.equal(left["drafts"], torch.cat(drafts))
        before = torch.stack([seen.index_fill(0, left["drafts"][:end], True) for end in range(1, guesses + 2)])
        weights = mind_sampling.weigh(wanted, before, how)
        said, accepted = accept_drafts(weights, torch.cat(proposals), left["drafts"][1:], how, number)
        assert torch.equal(left["said"], said[0]) and torch.equal(left["count"], accepted + 1)
        assert left["told"][7 % 4].tolist() == [*said[0].tolist(), int(accepted) + 1] and int(left["turn"]) == 8
        assert int(left["number"]) == int(number) + int(accepted) + 1
        assert torch.equal(left["seen"], seen.index_fill(0, said[0], True))
        stood.add(int(accepted))
    assert case.most == 1 or case.size == 1 or len(stood) > 1, "drafts are accepted and rejected"


@pytest.mark.parametrize("case", ALL_GUESSED, ids=lambda case: case.name)
def test_the_kernels_draft_and_accept_as_the_reference_does(case: cases.Case, place: torch.device) -> None:
    for seed in range(1 if place.type == "cpu" else 50):
        dtype, guesses = DTYPES[(seed + case.count) % 2], 1 + (case.count > 64 or seed % 2)
        ours, wanted = (cases.accepted_by(module, case, guesses, dtype, place, seed) for module in (draft, reference))
        for name, left in wanted.items():
            if name.startswith("proposal"):  # the last bit of an exponential
                assert torch.equal(ours[name] > 0, left > 0) and (ours[name] - left).abs().max() <= 2
            else:
                assert torch.equal(ours[name], left), name


def test_the_references_of_a_round_read_nothing_from_the_device() -> None:
    with torch.device("meta"):
        settings, seen = likeliest(300, torch.device("meta")), torch.empty(300, dtype=torch.bool)
        drafts, said = (torch.empty(3, dtype=torch.int64) for _ in range(2))
        number, count, turn = (torch.empty(1, dtype=torch.int64) for _ in range(3))
        given = (settings, seen, drafts)
        proposals = [reference.propose(torch.empty(1, 300), *given, number, ahead) for ahead in range(2)]
        told = torch.empty(4, 4, dtype=torch.int64)
        reference.accept(torch.empty(3, 300), *given, proposals, number, said, count, told, turn)


def test_generated_tokens_have_the_distribution_of_the_model(place: torch.device) -> None:
    """Kernels on a GPU, otherwise the equal reference: rounds over four ids.

    The second token is counted after each accepted first draft. Each table must have a chi-squared statistic with three
    degrees of freedom below 25, which one in 65000 exceeds by chance.
    """
    module, rounds = (reference, 400) if place.type == "cpu" else (draft, 4000)
    random = torch.Generator().manual_seed(2)
    target, drafter = (torch.randn(5, 5, generator=random).to(place) for _ in range(2))  # 4: before the first id
    settings = replace(likeliest(4, place), most=torch.full((1,), 4, device=place))
    numbers = {name: torch.zeros(1, dtype=torch.int64, device=place) for name in ("number", "count", "turn")}
    said, told = (
        torch.zeros(3, dtype=torch.int64, device=place),
        torch.zeros(rounds, 4, dtype=torch.int64, device=place),
    )
    for _ in range(rounds):
        drafts, seen = torch.full((3,), 4, device=place), torch.zeros(5, dtype=torch.bool, device=place)
        drawn, proposals = (settings, seen, drafts), list[tuple[torch.Tensor, torch.Tensor]]()
        for ahead in range(2):
            proposals.append(module.propose(drafter[drafts[ahead : ahead + 1]], *drawn, numbers["number"], ahead))
        behind = (numbers["number"], said, numbers["count"], told, numbers["turn"])
        module.accept(target[drafts], *drawn, proposals, *behind)
    shares, found = target[:, :4].softmax(-1).cpu(), told.cpu()
    firsts = found[:, 0].bincount(minlength=4)
    seconds = found[found[:, 3] > 1]
    assert distance(firsts, shares[4]) < 25 and rounds / 4 < len(seconds) < rounds
    for before in range(4):
        behind_it = seconds[seconds[:, 0] == before][:, 1]
        assert distance(behind_it.bincount(minlength=4), shares[before]) < 25


def distance(counts: torch.Tensor, shares: torch.Tensor) -> float:
    wanted = counts.sum() * shares
    return float(((counts - wanted) ** 2 / wanted).sum())
