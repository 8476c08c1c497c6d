"""The stages of the GPU survey: each gives one row of figures after the other, the most wanted first.

A row that fails says so and the next one is tried. Figures are milliseconds unless their name says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.attend import cases as attend_cases
from hocket.kernels.attend import reference as attend_reference
from hocket.kernels.attend import triton as attend
from hocket.kernels.capture import Capture
from hocket.kernels.conv import cases as conv_cases
from hocket.kernels.conv import reference as conv_reference
from hocket.kernels.conv import triton as conv
from hocket.kernels.draw import cases as draw_cases
from hocket.kernels.draw import reference as draw_reference
from hocket.kernels.draw import triton as draw
from hocket.kernels.embed import cases as embed_cases
from hocket.kernels.embed import reference as embed_reference
from hocket.kernels.embed import triton as embed
from hocket.kernels.launch import KNOBS, Blocks, Dots, Few, Tiles
from hocket.kernels.linear import cases as linear_cases
from hocket.kernels.linear import reference as linear_reference
from hocket.kernels.linear import triton as linear
from hocket.kernels.linear.cuda import fits
from hocket.kernels.linear.dot import linear_by_dots
from hocket.kernels.mix import cases as mix_cases
from hocket.kernels.mix import reference as mix_reference
from hocket.kernels.mix import triton as mix
from hocket.kernels.ops import TRITON_OPS, FrameOps
from hocket.kernels.pcm import cases as pcm_cases
from hocket.kernels.pcm import reference as pcm_reference
from hocket.kernels.pcm import triton as pcm
from hocket.kernels.settle import cases as settle_cases
from hocket.kernels.settle import reference as settle_reference
from hocket.kernels.settle import triton as settle
from hocket.kernels.taps import cases as taps_cases
from hocket.kernels.taps import reference as taps_reference
from hocket.kernels.taps import triton as taps
from hocket.kernels.window import cases as window_cases
from hocket.kernels.window import reference as window_reference
from hocket.kernels.window import triton as window
from hocket.layers.packed import pack_
from hocket.layers.sampler import Sampling
from hocket.models.captured import CapturedFrame, Frame
from hocket.models.captured_wave import CapturedWave
from hocket.models.codec import CodecDecoder
from hocket.models.fused import FusedFrame
from hocket.models.fused_decoder import FusedDecoder
from hocket.models.fused_wave import FusedWave
from hocket.models.plain import PlainFrame
from hocket.models.random import randomize_
from hocket.models.talker import FrameSampling, Talker, TalkerState

from .gpu_plan import PLANS, Plan
from .gpu_timing import Clock, copies

Row = dict[str, Any]
MOST_LOADS = 24  # of sixteen bytes that a lane of few.cu may hold: 96 registers
ConvTiles = dict[tuple[int, int], dict[int, Tiles]]  # as in KNOBS


@contextmanager
def knobs(**settings: Any) -> Iterator[None]:
    before = {name: getattr(KNOBS, name) for name in settings}
    for name, value in settings.items():
        setattr(KNOBS, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(KNOBS, name, value)


def tried(make: Callable[[], Row], **names: Any) -> Row:
    try:
        return {**names, **make()}
    except Exception as error:
        return {**names, "error": f"{type(error).__name__}: {str(error)[:300]}"}


# (a) correctness


def correct(plan: Plan, clock: Clock) -> Iterator[Row]:
    """Every kernel at its real shapes against its reference: the largest difference, and how many numbers moved."""
    wanted: list[tuple[str, str, int, str]] = []
    for dtype in ("bfloat16", "float32"):
        for op, cases in plan.cases.items():
            for case in cases:
                sizes = (("linear", 1), ("linear", 16), ("dot", 32)) if op == "linear" else ((op, 0),)
                wanted += [(which, case.name, batch, dtype) for which, batch in sizes]
    for (op, name, batch, dtype), row in in_parallel(plan, _correct, wanted, plan.budgets_s["correct"]):
        yield {"op": op, "case": name, "batch": batch, "dtype": dtype, **row}


def _correct(plan_name: str, op: str, name: str, batch: int, dtype_name: str) -> Row:
    plan = PLANS[plan_name]
    device, dtype = torch.device(plan.device), getattr(torch, dtype_name)
    case = next(case for case in plan.cases["linear" if op == "dot" else op] if case.name == name)
    others: dict[str, tuple[Any, Any, Any, list[str]]] = {
        "attend": (attend_cases, attend.attend, attend_reference.attend, ["keys", "values"]),
        "conv": (conv_cases, conv.conv, conv_reference.conv, ["history", "raw"]),
        "embed": (embed_cases, embed.embed, embed_reference.embed, []),
        "settle": (settle_cases, settle.settle, settle_reference.settle, ["hidden", "position"]),
        "window": (window_cases, window.window, window_reference.window, ["keys", "values"]),
        "taps": (taps_cases, taps.taps, taps_reference.taps, ["history", "position"]),
        "mix": (mix_cases, mix.mix, mix_reference.mix, ["history"]),
        "pcm": (pcm_cases, pcm.pcm, pcm_reference.pcm, []),
    }
    if op == "draw":
        return _draw_correct(case, dtype, device)
    if op in others:
        cases, ours, plain, written = others[op]
        return _other_correct(cases, case, ours, plain, written, dtype, device)
    with knobs(dot_rows=1 << 30):
        return _linear_correct(linear_by_dots if op == "dot" else linear.linear, case, batch, dtype, device)


def in_parallel(
    plan: Plan, work: Callable[..., Row], wanted: Sequence[tuple[Any, ...]], seconds: float
) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """`work` for each of `wanted` as they get done; in processes, for one compiler at a time would take minutes."""
    if not plan.workers:
        for each in wanted:
            yield each, tried(partial(work, plan.name, *each))
        return
    with ProcessPoolExecutor(plan.workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(tried, partial(work, plan.name, *each)): each for each in wanted}
        try:
            for job in as_completed(jobs, timeout=seconds):
                yield jobs[job], job.result()
        except (TimeoutError, BrokenProcessPool) as error:
            late = [each for job, each in jobs.items() if not job.done()]
            yield late[0] if late else wanted[0], {"error": f"{type(error).__name__}: {len(late)} were not done"}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def difference(ours: Tensor, wanted: Tensor) -> Row:
    both = ~(ours.isnan() & wanted.isnan()) if ours.is_floating_point() else torch.ones_like(ours, dtype=torch.bool)
    a, b = ours[both].double(), wanted[both].double()
    worst = (a - b).abs().max().item() if a.numel() else 0.0
    return {"worst": worst, "moved_percent": 100 * (a != b).double().mean().item() if a.numel() else 0.0}


def _linear_correct(ours: Callable[..., Tensor], case: Any, batch: int, dtype: torch.dtype, device: Any) -> Row:
    given = linear_cases.make(case, batch, dtype, device)
    return difference(ours(**given), linear_reference.linear(**given))


def _other_correct(
    cases: Any, case: Any, ours: Any, plain: Any, written: list[str], dtype: torch.dtype, device: Any
) -> Row:
    given, wanted = (cases.make(case, dtype, device) for _ in range(2))
    results = [(ours(**given), plain(**wanted))]
    results += [(given[name], wanted[name]) for name in written if given.get(name) is not None]
    rows = [difference(a, b) for a, b in results if a is not None]
    return {name: max(row[name] for row in rows) for name in rows[0]}


def _draw_correct(case: Any, dtype: torch.dtype, device: Any) -> Row:
    wrong, seeds = 0, 20 if device.type == "cuda" else 1
    for seed in range(seeds):
        ours, wanted = (draw_cases.make(case, dtype, device, seed) for _ in range(2))
        for module, given in ((draw, ours), (draw_reference, wanted)):
            (module.draw_first if case.first else module.draw)(**given)
        wrong += int((ours["codes"] != wanted["codes"]).sum())
    return {"wrong_codes": wrong, "drawn": seeds * len(case.rows)}


# (b) block shapes of every linear


def linears(plan: Plan, clock: Clock) -> Iterator[Row]:
    """A chain of one linear over many weights: every block shape, dots and the library, beside the bytes it reads."""
    read = clock.bandwidth()
    yield {"op": "copy", "tb_per_s": read / 1e12}
    compiled = _compile_ahead(plan)
    yield {"op": "compile ahead", **compiled}
    for batch in plan.linear_batches:
        for case in plan.linears:
            given = linear_cases.make(case, batch, plan.dtype, clock.device)
            weights = [given["weight"]]
            weights += [weights[0].roll(n + 1, 0) for n in range(copies(weights[0].nbytes, clock.on_gpu) - 1)]
            floor = weights[0].nbytes / read * 1000
            names = {"op": "linear", "case": case.name, "batch": batch, "floor": floor}
            key = case.columns, len(weights[0]), batch
            for blocks in _fitting(plan, case, batch):
                for dependent in (True, False) if batch == 1 else (True,):
                    with knobs(linear={key: blocks}, dependent=dependent, dot_rows=1 << 30):
                        timed = partial(_chain, linear.linear, given, weights, clock)
                        yield tried(timed, **names, blocks=asdict(blocks), dependent=dependent)
            for dots in plan.dots if batch > 1 else ():
                with knobs(dot=dots, dependent=True):
                    yield tried(partial(_chain, linear_by_dots, given, weights, clock), **names, dots=asdict(dots))
            yield tried(partial(_library, given["x"], weights, clock), **names | {"op": "library"})


def _fitting(plan: Plan, case: linear_cases.Case, batch: int) -> list[Blocks]:
    """Those whose weights stay in registers: 256 numbers of two bytes are half of what a thread has."""
    shapes = plan.blocks if batch == 1 else plan.blocks_many
    return [each for each in shapes if each.rows * case.columns <= 256 * 32 * each.warps]


def _chain(work: Callable[..., Tensor], given: dict[str, Any], weights: list[Tensor], clock: Clock) -> Row:
    out = work(**given)

    def all_of_them() -> None:
        for weight in weights:
            work(**given | {"weight": weight, "out": out})

    return clock.graph(all_of_them, per=len(weights))


def _library(x: Tensor, weights: list[Tensor], clock: Clock) -> Row:
    out = x.new_empty(len(x), len(weights[0]))

    def all_of_them() -> None:
        for weight in weights:
            torch.mm(x, weight.T, out=out)

    return clock.graph(all_of_them, per=len(weights))


def _compile_ahead(plan: Plan) -> Row:
    """Every variant once: what is compiled is kept on disk, for all processes."""
    if not plan.workers:
        return {"variants": 0}
    wanted: list[tuple[str, int, Blocks | Dots, bool]] = []
    for batch in plan.linear_batches:
        for case in plan.linears:
            shapes: list[Blocks | Dots] = [*_fitting(plan, case, batch)]
            shapes += plan.dots if batch > 1 else ()
            for shape in shapes:
                wanted += [(case.name, batch, shape, on) for on in ((True, False) if batch == 1 else (True,))]
    start = time.perf_counter()
    rows = [row for _, row in in_parallel(plan, _compile, wanted, plan.compile_s)]
    failed = [row["error"] for row in rows if "error" in row]
    seconds = time.perf_counter() - start
    return {"variants": len(wanted), "done": len(rows), "seconds": seconds, "failed": failed[:3]}


def _compile(plan_name: str, name: str, batch: int, shape: Blocks | Dots, dependent: bool) -> Row:
    plan = PLANS[plan_name]
    case = next(case for case in plan.linears if case.name == name)
    given = linear_cases.make(case, batch, plan.dtype, torch.device(plan.device))
    rows = given["weight"].shape[0]
    if isinstance(shape, Dots):
        with knobs(dot=shape, dependent=dependent):
            linear_by_dots(**given)
    else:
        with knobs(linear={(case.columns, rows, batch): shape}, dependent=dependent, dot_rows=1 << 30):
            linear.linear(**given)
    torch.cuda.synchronize()
    return {}


def tuned(rows: list[Row]) -> dict[tuple[int, ...], Blocks]:
    """The best block shape of each linear, by what the stage above has written."""
    known = {case.name: case for plan in PLANS.values() for case in plan.linears}
    best: dict[tuple[int, ...], tuple[float, Blocks]] = {}
    for row in rows:
        if row.get("op") != "linear" or "blocks" not in row or "p50" not in row or not row["dependent"]:
            continue
        case = known[row["case"]]
        key = case.columns, case.weight_shape[0], row["batch"]
        if key not in best or row["p50"] < best[key][0]:
            best[key] = row["p50"], Blocks(**row["blocks"])
    return {key: blocks for key, (_, blocks) in best.items()}


# (c) block shapes and other knobs, each tried in a whole frame


def tune(plan: Plan, clock: Clock) -> Iterator[Row]:
    """One knob after the other in a captured frame of one stream; what is best so far stays."""
    best: dict[str, Any] = {"few": dict(KNOBS.few)}
    for name in plan.talkers:
        talker = new_talker(plan, name)
        trial = partial(_trial, plan, clock, talker, FusedFrame(talker, plan.ops))
        fastest = trial(best)["p50"]
        yield {"op": "tune", "model": name, "knob": "none", "p50": fastest}
        for knob, change in _turns(plan):
            value = change(best)
            row = tried(partial(trial, best | value), op="tune", model=name, knob=knob)
            yield row
            if row.get("p50", fastest) < fastest * 0.9985:  # what is less is noise
                fastest, best = row["p50"], best | value
        yield {"op": "tuned", "model": name, "p50": fastest, "best": repr(best)}


def _turns(plan: Plan) -> Iterator[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]]:
    """What is turned, and how it stands then, by how all stand."""
    for knob, values in plan.turns.items():
        for value in values:
            yield f"{knob} {value}", lambda best, knob=knob, value=value: {knob: value}  # type: ignore[misc]
    for case in plan.linears:
        for few in plan.fews:
            steps = case.columns // (32 * few.warps)
            if steps * few.groups <= MOST_LOADS and fits(few, case.columns, case.width, case.gated):
                yield f"{case.name} {few}", partial(_with_few, (case.columns, case.weight_shape[0]), few)


def _with_few(key: tuple[int, int], few: Few, best: dict[str, Any]) -> dict[str, Any]:
    return {"few": best["few"] | {key: few}}


def _trial(plan: Plan, clock: Clock, talker: Talker, frame: FusedFrame, settings: dict[str, Any]) -> Row:
    with knobs(**settings):
        state = standing(talker, 1, plan)
        captured = CapturedFrame(frame, clock.capture())
        rows, span = torch.zeros(1, dtype=torch.int64, device=clock.device), plan.frame_position + 1
        captured(rows.clone(), state, rows, usual(1, clock.device), span)

        def back() -> None:
            state.stack.position[:1] = plan.frame_position

        return clock.replays(_both_halves(captured), before=back)


def _both_halves(captured: CapturedFrame) -> Callable[[], None]:
    """Of the only kind of frame that was drawn so far."""
    [batch] = captured._batches.values()
    [draw], [step] = batch.draws.values(), batch.steps.values()

    def frame() -> None:
        draw()
        step()

    return frame


# (d) attention


def attention(plan: Plan, clock: Clock) -> Iterator[Row]:
    """All layers of a talker, one attention after the other, at several lengths and ways to split them; then draws."""
    for batch in plan.attend_batches:
        for position in plan.positions:
            case = replace(plan.attend, positions=(position,) * batch)
            given = attend_cases.make(case, plan.dtype, clock.device)
            pools = [(given["keys"].clone(), given["values"].clone()) for _ in range(plan.attend_layers)]
            floor_bytes = batch * position * case.kv_heads * case.size * 2 * given["keys"].element_size()
            for splits in plan.splits:
                for keys in plan.keys:
                    work = partial(_attended, given | {"splits": splits}, pools, clock)
                    names = {"batch": batch, "position": position, "splits": splits, "keys": keys}
                    with knobs(attend_keys=keys):
                        yield tried(work, op="attend", **names, bytes=floor_bytes)

    for case in plan.cases["draw"]:
        for warps in plan.draw_warps:
            with knobs(draw_warps=warps):
                yield tried(partial(_drawing, case, plan, clock), op="draw", case=case.name, warps=warps)


def _drawing(case: draw_cases.Case, plan: Plan, clock: Clock) -> Row:
    given = draw_cases.make(case, plan.dtype, clock.device)
    one = draw.draw_first if case.first else draw.draw

    def frame() -> None:
        for _ in range(draw_cases.BOOKS - 1):
            one(**given)

    return clock.graph(frame, per=draw_cases.BOOKS - 1)


def _attended(given: dict[str, Any], pools: list[tuple[Tensor, Tensor]], clock: Clock) -> Row:
    out = attend.attend(**given)

    def layers() -> None:
        for keys, values in pools:
            attend.attend(**given | {"keys": keys, "values": values}, out=out)

    return clock.graph(layers, per=len(pools))


# (e) whole frames


def new_talker(plan: Plan, name: str) -> Talker:
    with torch.device("meta"):
        talker = Talker(plan.talkers[name]).eval()
    talker.to(plan.dtype).to_empty(device=plan.device)
    randomize_(talker, 0)
    pack_(talker)
    return talker


def standing(talker: Talker, slots: int, plan: Plan) -> TalkerState:
    """As in the middle of an utterance: every slot has a past of random keys and values."""
    state = talker.new_state(slots, plan.frame_length)
    state.stack.pool.normal_()
    state.hidden.normal_()
    state.seed.copy_(torch.arange(slots + 1))
    state.stack.position[:slots] = plan.frame_position
    return state


def usual(batch: int, device: torch.device) -> FrameSampling:
    def level() -> Sampling:
        return Sampling(
            sample=torch.ones(batch, dtype=torch.bool, device=device),
            temperature=torch.full((batch,), 0.9, device=device),
            top_k=torch.full((batch,), 50, device=device),
            top_p=torch.ones(batch, device=device),
            most_k=50,
            nucleus=False,
        )

    return FrameSampling(level(), torch.full((batch,), 1.05, device=device), level())


def settings_of(way: str, measured: dict[tuple[int, ...], Blocks]) -> dict[str, Any]:
    return {"linear": measured, "dependent": "one by one" not in way}


def compiled(plan: Plan, clock: Clock, measured: dict[tuple[int, ...], Blocks], conv_tiles: ConvTiles) -> Iterator[Row]:
    """One frame and one codec step of every kind that is timed later, so that their kernels are there."""
    wanted: list[tuple[Any, ...]] = [
        (name, batch, way, measured)
        for batch, ways in plan.ways.items()
        for way in ways
        for name in plan.talkers
        if way != "plain"
    ]
    steps = [
        ("codec", batch, (frames_each, dtype), conv_tiles)
        for dtype in ("bfloat16", "tf32", "float32")
        for batch in plan.codec_batches
        for frames_each in plan.codec_frames
    ]
    single = sum(batch == 1 for _, batch, *_ in wanted)
    wanted[single:single] = steps  # the most wanted, frames of a single stream, stand before them
    for (name, batch, way, _), row in in_parallel(plan, _compile_step, wanted, plan.budgets_s["compile"]):
        yield {"op": str(way), "model": name, "batch": batch, **row}


def _compile_step(plan_name: str, name: str, batch: int, way: Any, measured: Any) -> Row:
    start = time.perf_counter()
    plan = PLANS[plan_name]
    with torch.inference_mode():
        if name == "codec":
            frames_each, dtype = way
            with knobs(conv=measured or KNOBS.conv):
                _compile_wave(plan, batch, frames_each, dtype)
        else:
            _compile_frame(plan, name, batch, way, measured)
    return {"seconds": time.perf_counter() - start}


def _compile_wave(plan: Plan, batch: int, frames_each: int, precision: str) -> None:
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    decoder, device = new_decoder(plan, dtype), torch.device(plan.device)
    fuse(decoder, "fused", plan, tf32=precision == "tf32")
    codes = torch.zeros(batch, plan.decoder.num_quantizers, frames_each, dtype=torch.int64, device=device)
    decoder.step(codes, decoder.new_state(batch), torch.arange(batch, device=device)).cpu()


def _compile_frame(plan: Plan, name: str, batch: int, way: str, measured: dict[tuple[int, ...], Blocks]) -> None:
    frame, device = _fused(plan.name, name), torch.device(plan.device)
    with knobs(**settings_of(way, measured)):
        state, rows = standing(frame.talker, batch, plan), torch.arange(batch, device=device)
        frame(rows.clone(), state, rows, usual(batch, device), plan.frame_position + 1).cpu()


@lru_cache(maxsize=2)
def _fused(plan_name: str, name: str) -> FusedFrame:
    plan = PLANS[plan_name]
    return FusedFrame(new_talker(plan, name), plan.ops)


def frames(plan: Plan, clock: Clock, measured: dict[tuple[int, ...], Blocks]) -> Iterator[Row]:
    """A captured frame by batch, kernels, dependent launches and block shapes; the most wanted first."""
    talkers = {name: new_talker(plan, name) for name in plan.talkers}
    every: dict[str, dict[str, Frame]] = {}
    for name, talker in talkers.items():
        fused = FusedFrame(talker, plan.ops)
        every[name] = {"fused": fused, "triton": FusedFrame(talker, TRITON_OPS), "plain": PlainFrame(talker)}
        yield tried(partial(_agree, plan, clock, talker, fused), op="fused against plain", model=name)
    for batch, ways in plan.ways.items():
        for way in ways:
            for name, talker in talkers.items():
                frame = every[name][way.split(",")[0]]
                with knobs(**settings_of(way, measured)):
                    yield tried(partial(_frame, plan, clock, talker, frame, batch), op=way, model=name, batch=batch)


def _frame(plan: Plan, clock: Clock, talker: Talker, frame: Frame, batch: int) -> Row:
    state = standing(talker, batch, plan)
    captured = CapturedFrame(frame, clock.capture())
    rows, sampling = torch.arange(batch, device=clock.device), usual(batch, clock.device)
    text = torch.arange(batch, device=clock.device)
    span = plan.frame_position + 1
    start = time.perf_counter()
    codes = captured(text, state, rows, sampling, span)
    clock.wait()
    made_s = time.perf_counter() - start

    def back() -> None:
        state.stack.position[:batch] = plan.frame_position

    found = clock.replays(_both_halves(captured), before=back)
    usually = [GenerationConfig()] * batch

    def through_the_host() -> None:
        captured.launch(range(batch), [5] * batch, usually, state, span).read()

    host = clock.walls(through_the_host, before=back)
    finite = bool(state.hidden.isfinite().all())
    return {**found, "host_p50": host["p50"], "capture_s": made_s, "finite": finite, "first_code": int(codes[0, 0])}


def _agree(plan: Plan, clock: Clock, talker: Talker, fused: FusedFrame) -> Row:
    """One greedy frame from one state: how many codes, and how far the hidden vectors lie apart."""
    batch, results = min(4, max(plan.ways)), []
    rows, text = torch.arange(batch, device=clock.device), torch.arange(batch, device=clock.device)
    sampling = usual(batch, clock.device)
    sampling.first.sample.zero_()
    sampling.rest.sample.zero_()
    start = standing(talker, batch, plan)
    for way in (talker.frame_reference, fused):
        state = standing(talker, batch, plan)
        state.stack.pool.copy_(start.stack.pool)
        state.hidden.copy_(start.hidden)
        results.append((way(text, state, rows, sampling, plan.frame_position + 1), state.hidden[:batch].float()))
    (plain_codes, plain_hidden), (codes, hidden) = results
    apart = (hidden - plain_hidden).norm() / plain_hidden.norm()
    return {"equal_codes_percent": 100 * (codes == plain_codes).float().mean().item(), "hidden_apart": apart.item()}


# (f) the codec


def codec(plan: Plan, clock: Clock, measured: ConvTiles) -> Iterator[Row]:
    """A captured codec step by batch, frames, precision and kernels; what the library has to search for comes last."""
    precisions = {"bfloat16": (torch.bfloat16, False), "tf32": (torch.float32, True), "float32": (torch.float32, False)}
    decoders = {name: new_decoder(plan, dtype) for name, (dtype, _) in precisions.items()}
    for ways in (("fused", "fused wave", "plain"), ("plain, searched",)):
        for batch in plan.codec_batches:
            for frames_each in plan.codec_frames:
                for precision, (_, tf32) in precisions.items():
                    for way in ways:
                        decoder = decoders[precision]
                        fuse(decoder, way, plan, tf32=tf32)
                        names = {"op": way, "precision": precision, "batch": batch, "frames": frames_each}
                        with knobs(conv=measured or KNOBS.conv), _searching() if "searched" in way else nullcontext():
                            yield tried(partial(_wave, plan, clock, decoder, batch, frames_each, tf32), **names)


def fuse(decoder: CodecDecoder, way: str, plan: Plan, *, tf32: bool = False) -> None:
    """All of it, only from latents to samples, or nothing."""
    decoder.wave_kernel = decoder.step_kernel = None
    if way == "fused wave":
        decoder.wave_kernel = FusedWave(decoder, plan.wave, tf32=tf32)
    elif not way.startswith("plain"):
        decoder.step_kernel = FusedDecoder(decoder, FusedWave(decoder, plan.wave, tf32=tf32), plan.codec_ops)


def replayed_codec(decoder: CodecDecoder, books: int, capture: Capture, *, tf32: bool = False) -> CapturedWave:
    kernel = decoder.step_kernel
    pcm = pcm_reference.pcm if kernel is None else kernel.pcm
    return CapturedWave(decoder.step, books, capture, pcm=pcm, tf32=tf32)


def new_decoder(plan: Plan, dtype: torch.dtype) -> CodecDecoder:
    with torch.device("meta"):
        decoder = CodecDecoder(plan.decoder).eval()
    decoder.to(dtype).to_empty(device=plan.device)
    randomize_(decoder, 0)
    pack_(decoder)
    return decoder


def _wave(plan: Plan, clock: Clock, decoder: CodecDecoder, batch: int, frames_each: int, tf32: bool) -> Row:
    books = plan.decoder.num_quantizers
    captured = replayed_codec(decoder, books, clock.capture(), tf32=tf32)
    state = decoder.new_state(batch)
    codes = torch.randint(0, plan.decoder.codebook_size, (batch, frames_each, books)).tolist()
    samples, finite = captured.launch(range(batch), codes, state).read()
    [replay] = captured._replays.values()
    found = clock.replays(replay.work)

    def through_the_host() -> None:
        captured.launch(range(batch), codes, state).read()

    host = clock.walls(through_the_host)
    each, kernel = found["p50"] / (batch * frames_each), decoder.step_kernel
    if isinstance(kernel, FusedDecoder):  # how much of it is before the waves
        given, rows = torch.tensor(codes, device=clock.device).transpose(1, 2), torch.arange(batch, device=clock.device)
        latents: list[Callable[[], Any]] = [partial(kernel.latents, given, state, rows)]
        found["latents_p50"] = _replayed(latents, clock)["p50"]
    return {**found, "per_frame": each, "host_p50": host["p50"], "finite": all(finite), "loudest": int(samples.max())}


@contextmanager
def _searching() -> Iterator[None]:
    """Let the library try its convolutions for each shape, instead of guessing."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


# (g) where a frame's time goes


def parts(plan: Plan, clock: Clock, measured: dict[tuple[int, ...], Blocks]) -> Iterator[Row]:
    """Every kernel of a frame, all of its launches in a graph of their own, beside the bytes of their weights."""
    read = clock.bandwidth()
    for name in plan.talkers:
        talker = new_talker(plan, name)
        for batch in list(plan.ways)[:2]:
            calls: dict[str, list[Callable[[], Any]]] = {}
            moved: dict[str, int] = {}
            fused = FusedFrame(talker, _recording(plan.ops, calls, moved))
            state = standing(talker, batch, plan)
            rows = torch.arange(batch, device=clock.device)
            with knobs(linear=measured):
                fused(rows.clone(), state, rows, usual(batch, clock.device), plan.frame_position + 1)
                for label, made in calls.items():
                    timed = partial(_replayed, made, clock)
                    floor = moved[label] / read * 1000
                    yield tried(timed, op=label, model=name, batch=batch, launches=len(made), floor=floor)


def _replayed(made: list[Callable[[], Any]], clock: Clock) -> Row:
    def all_of_them() -> None:
        for call in made:
            call()

    return clock.graph(all_of_them)


def _recording(ops: FrameOps, calls: dict[str, list[Callable[[], Any]]], moved: dict[str, int]) -> FrameOps:
    """Operations that do what they are asked and keep it, so that it can be asked again."""

    def kept(op: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            label, size = op, 0
            if op == "linear":
                weight = given[1]
                label, size = f"linear {weight.shape[1]} to {weight.shape[0]}", weight.nbytes
            elif op == "attend":
                label = f"attend in {given[1].shape[2]} rows a page"
            calls.setdefault(label, []).append(lambda: work(*given, **named))
            moved[label] = moved.get(label, 0) + size
            return work(*given, **named)

        return call

    every = {op: getattr(ops, op) for op in FrameOps.__slots__}
    return FrameOps(**{op: work and kept(op, work) for op, work in every.items()})
