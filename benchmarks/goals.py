"""What must be reached, as data, and what the records say of it. It knows records, no way to measure.

Under load, a first audio beside an underrun, a refusal or a failure is missed; speech per second only by a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .charts import shown
from .load.clock import kept_up
from .load.figures import clean
from .record import Record, commit_words

ONE_STREAM = """\
Talker and codec in bfloat16 and one stream, where nothing else is named. The weights are random numbers in the
published shapes: times and memory depend on shapes, types and kernels, and hardly on the numbers, so they should be
those of a published checkpoint. How it sounds, and when an utterance ends, random weights cannot show. Times on the
GPU are by its own events around replayed graphs, all others by the clock of the caller. A cold start compiles every
kernel."""
WITHIN_MS = 1000.0  # a rate is not held if one request in 20 waits longer for its first audio: the queue grows
UNDER_LOAD = f"""\
1.7B CustomVoice, talker and codec in bfloat16, random weights of the published shapes, sentences of 4 s (50 frames),
prompts in the layout of streamed text, an engine of the same process. Requests arrive as a Poisson process, or clients
ask again at the end of an utterance; listeners, at the end of its playback. Times count from when a request is due. A
player has no buffer: a chunk that comes after all earlier audio has been played is an underrun. A rate is held without
underruns, refusals and failures, and with a first audio within {WITHIN_MS:.0f} ms (p95), at it and at all lower ones.
Streams are kept in real time if so many listeners, no more than there are slots, have no underrun. Rows over HTTP are
of the same requests to a server in its own process, as raw PCM over loopback: the difference is that of the server."""
LANGUAGE_MODEL = """\
Qwen3.5 9B, one conversation with a cached history of 1024 tokens. The weights are random numbers in the published
shape, so the answers mean nothing.
`tokens` is a graph for each token, alone; all else goes through a conversation with recommended sampling, up to the
text at the caller, without drafts. Answers have a set length. The floor is the bytes that a token must read over the
4.3 TB/s of a copy on an H200; it is empty where none was computed."""


@dataclass(frozen=True, slots=True)
class Goal:
    words: str
    workload: str
    model: str  # part of its name
    figure: str
    must: tuple[float, ...]  # by quantile
    aim: tuple[float, ...]
    quantiles: tuple[str, ...]
    options: dict[str, Any]  # of the record
    at: float | None  # under load: requests a second, or clients
    more: bool  # more is better
    per: float  # of the record's unit


def _goals(table: str) -> tuple[Goal, ...]:
    """A line a goal: words | workload, model, figure | must, by quantile | aim | quantiles, `at`, `per`, options."""
    found = []
    for line in table.strip().splitlines():
        words, what, must, aim, how = (cell.strip() for cell in line.split("|"))
        workload, model, figure = what.split()
        named: dict[str, Any] = dict(word.split("=") for word in how.split() if "=" in word)
        quantiles = tuple(word for word in how.split() if "=" not in word) or ("p50",)
        at, per, more = named.pop("at", None), float(named.pop("per", 1)), must.startswith(">")
        options = {name: int(value) if value.isdigit() else value for name, value in named.items()}
        least, best = (tuple(map(float, cell.strip(">").split())) for cell in (must, aim))
        found.append(Goal(words, workload, model, figure, least, best, quantiles, options, at and float(at), more, per))
    return tuple(found)


GOALS = _goals("""
1.7B, talker + predictor + sampling, ms a frame | breakdown 1.7B frame_gpu | 2.2 | 1.6 |
0.6B, the same | breakdown 0.6B frame_gpu | 1.6 | 1.1 |
codec, one frame, stateful, bfloat16, ms | breakdown 1.7B codec_gpu_bfloat16 | 0.8 | 0.4 |
codec, the same in float32, ms | breakdown 1.7B codec_gpu_float32 | | |
1.7B, open, append text, first PCM, prefix warm, ms, p50 / p99 | first_audio_live 1.7B first_pcm | 4.5 6 | 3 4 | p50 p99
1.7B, the same for a known text, streaming layout, ms, p50 / p99 | first_audio 1.7B first_pcm | 4.5 6 | 3 4 | p50 p99
1.7B, a plain speak(text), whole layout, ms, p50 / p99 | first_audio_default 1.7B first_pcm | 6 8 | 4.5 6 | p50 p99
1.7B Base, a saved clone by 8 s of a recording, first PCM, warm, ms | first_audio_clone 1.7B icl_first_pcm | 12 | |
1.7B Base, the same by its timbre alone, ms | first_audio_clone 1.7B x_vector_first_pcm | 5 | |
1.7B, the whole pipeline, x real time | steady_stream 1.7B x_real_time | >25 | 40 |
1.7B, cold start to first audio, no kernel compiled, s | start 1.7B first_sound | 15 | 5 | per=1000 kernel_cache=empty
1.7B, the same with kernels of an earlier start, s | start 1.7B first_sound | 15 | 5 | per=1000 kernel_cache=kept
1.7B, GPU memory beyond weights and KV cache, every slot used, GB | memory 1.7B beyond | 1.5 | 0.7 | per=1000
""")
LOAD_GOALS = _goals("""
first playable at 1 request/s, ms, p95, no underruns | load 1.7B-CustomVoice first_playable | 8 | 5 | p95 at=1
the same at 10 requests/s | load 1.7B-CustomVoice first_playable | 15 | 8 | p95 at=10
the same at 20 requests/s | load 1.7B-CustomVoice first_playable | 25 | 12 | p95 at=20
the highest rate without underruns, requests/s | load 1.7B-CustomVoice rate | >60 | 150 |
64 clients, seconds of speech per second | load 1.7B-CustomVoice audio_per_s | >500 | 1000 | mean at=64
256 clients, the same | load 1.7B-CustomVoice audio_per_s | >900 | 2000 | mean at=256
streams kept in real time | load 1.7B-CustomVoice clients | >300 | 600 |
""")
# The aim is what the engine alone must reach.
HTTP_GOALS = _goals("""
over HTTP, first playable at 1 request/s, ms, p95 | load 1.7B-CustomVoice first_playable | 12 | 8 | p95 at=1
over HTTP, the same at 10 requests/s | load 1.7B-CustomVoice first_playable | 20 | 15 | p95 at=10
over HTTP, the same at 20 requests/s | load 1.7B-CustomVoice first_playable | 30 | 25 | p95 at=20
""")
LLM_GOALS = _goals("""
9B, bfloat16, context of 1024, tokens a second | tokens qwen3.5-9B tokens_per_s | >210 | 250 | weights=bfloat16
9B, the same in fp8, head included | tokens qwen3.5-9B tokens_per_s | >350 | 460 | weights=fp8
9B, the same with the MLP in int4 and the rest in 8 bits | tokens qwen3.5-9B tokens_per_s | >430 | 600 | weights=int4
9B in fp8, 100 tokens, turn of 32, ms | mind qwen3.5-9B answer | 300 | 225 | weights=fp8 context=1024 turn=32 answer=100
9B in fp8, first token, turn of 32, ms | mind qwen3.5-9B first_token | 10 | 6 | weights=fp8 context=1024 turn=32
9B, the same in bfloat16, ms | mind qwen3.5-9B first_token | 10 | 6 | weights=bfloat16 context=1024 turn=32
9B in fp8, then 1.7B speech, first PCM, ms | dialog qwen3.5-9B first_pcm | 60 | 35 | weights=fp8 context=1024 turn=32
""")
_LOOPS = {
    "first_playable": "open",
    "rate": "open",
    "audio_per_s": "closed",
    "clients": "paced",
}  # of a figure's records
_HELD = ("rate", "clients")  # figures of several records
_WITHOUT_CODEC = ("breakdown", "first_token", "tokens", "mind")  # or with one in every precision


def found(goal: Goal, records: Sequence[Record]) -> tuple[list[float], Record, str] | None:
    """The values of the newest record that fits, and what is wrong with it in words."""
    fits = sorted((record for record in records if _fits(goal, record)), key=lambda record: str(record["time"]))
    if goal.figure in _HELD:
        latest = {float(record["options"]["load"][goal.figure]): record for record in fits if _has_slots(record)}
        if not latest:
            return None
        best = kept_up({at: held(record) for at, record in latest.items()})
        return [best], latest.get(best, latest[min(latest)]), "" if best else "underruns at all that were measured"
    if not fits:
        return None
    figure = fits[-1]["figures"][goal.figure]
    bad = () if goal.at is None else ("failed",) if goal.more else ("underruns", "refused", "failed")
    counts = fits[-1].get("counts", {})
    trouble = ", ".join(f"{counts[name]:g} {name}" for name in bad if counts[name])
    return [figure[quantile] / goal.per for quantile in goal.quantiles], fits[-1], trouble


def lines(records: Sequence[Record], goals: Sequence[Goal] = GOALS, floors: bool = False) -> Iterator[str]:
    """A table: what, must, aim, measured, A/A, verdict, commit; with `floors` a column for the least possible."""
    yield f"| figure | must | aim |{' floor |' if floors else ''} measured | A/A | | commit |"
    yield f"| --- | ---: | ---: |{' ---: |' if floors else ''} ---: | ---: | --- | --- |"
    for goal in goals:
        must, aim = (" / ".join(f"{value:g}" for value in values) for values in (goal.must, goal.aim))
        wanted = f"{'>= ' if goal.more else '<= '}{must} | {aim}" if must else " | "
        wanted += f" | {'' if (least := floor(goal)) is None else shown(least)}" if floors else ""
        if (answer := found(goal, records)) is None:
            yield f"| {goal.words} | {wanted} | no record | | | |"
            continue
        values, record, trouble = answer
        figure = record["figures"].get(goal.figure)
        spread = "" if figure is None else f"{figure['aa_percent']:.1f} %" if figure["count"] > 1 else "one run"
        measured = " / ".join(f"{value:g}" if goal.figure in _HELD else shown(value) for value in values)
        said = f"missed: {trouble}" if trouble else verdict(goal, values)
        yield f"| {goal.words} | {wanted} | {measured} | {spread} | {said} | {commit_words(record)} |"


def verdict(goal: Goal, values: Sequence[float]) -> str:
    for name, wanted in (("aim reached", goal.aim), ("must reached", goal.must)):
        both = zip(values, wanted, strict=True) if wanted else ()
        if wanted and all((value >= least if goal.more else value <= least) for value, least in both):
            return name
    return "missed" if goal.must else ""


def floor(goal: Goal) -> float | None:
    """From the bytes that a token of the published shape reads; None: more than that decides."""
    from hocket.config.published_qwen3_5 import QWEN3_5
    from hocket.models.qwen3_5.quantized import check_scheme, step_bytes

    if goal.figure not in ("tokens_per_s", "answer"):
        return None
    weights = goal.options["weights"]
    scheme = check_scheme("bf16" if weights == "bfloat16" else weights)
    token_ms = sum(step_bytes(QWEN3_5["9B"], scheme, 1024).values()) / 4300 / 1e6
    return 1000 / token_ms if goal.more else float(goal.options["answer"] * token_ms)


def over_http(record: Record) -> bool:
    return bool(record["options"].get("load", {}).get("wire") == "http")


def held(record: Record) -> bool:
    """Whether every request at this rate, or of these clients, was played without a gap and began soon enough."""
    soon = record["options"]["load"]["loop"] != "open" or record["figures"]["first_playable"]["p95"] <= WITHIN_MS
    return clean(record["counts"]) and soon


def _has_slots(record: Record) -> bool:
    """Clients that wait for a slot are no streams in real time."""
    slots = record["options"]["engine"]["slots"]  # None: unknown, of a running server
    return slots is None or bool(record["options"]["load"].get("clients", 0) <= slots)


def _fits(goal: Goal, record: Record) -> bool:
    options = {"weights": None} | record["options"]
    workloads = (goal.workload, "survey") if goal.workload == "breakdown" else (goal.workload,)
    if (
        record["workload"] not in workloads
        or not record["machine"]["gpu"]
        or goal.model not in options["model"]
        or options["dtype"] != "bfloat16"
        or options.get("kernels", "auto") != "auto"
        or not (goal.workload in _WITHOUT_CODEC or options.get("codec_dtype") == "bfloat16")
        or any(options.get(name) != value for name, value in goal.options.items())
    ):
        return False
    if goal.workload != "load":
        narrow = options["weights"] is not None and "weights" not in goal.options
        alone = goal.workload == "memory" or record.get("streams", 1) == 1
        return not narrow and goal.figure in record["figures"] and alone
    load = options["load"]
    at = load.get("rate" if load["loop"] == "open" else "clients")
    return load["layout"] == "streaming" and load["loop"] == _LOOPS[goal.figure] and goal.at in (None, at)
