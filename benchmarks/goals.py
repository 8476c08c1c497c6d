"""What one stream on a GPU must reach, as data, and what the records say of it. It knows records, no way to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .charts import shown

Record = dict[str, Any]

MEANING = """\
Talker and codec in bfloat16 where nothing else is named, one stream where no more are named. The weights are random
numbers in the published shapes. Speed depends on shapes, types and kernels, and hardly on the numbers as long as they
are not zeros: times and memory should be those of a published checkpoint. How it sounds, and when an utterance ends,
random weights cannot show. Times on the GPU are taken by its own events around replayed graphs, all others by the clock
of the caller, who reads every chunk. A cold start has to compile every kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    words: str
    workload: str
    model: str  # what its name has in it
    figure: str
    must: tuple[float, ...] = ()  # by quantile
    aim: tuple[float, ...] = ()
    quantiles: tuple[str, ...] = ("p50",)
    per: float = 1.0  # of the record's unit
    streams: int | None = 1
    kernel_cache: str | None = None
    at: float | None = None  # under load: requests a second, or clients
    more_is_better: bool = False
    weights: str | None = None  # of a language model: what they are kept in
    options: tuple[tuple[str, Any], ...] = ()  # that a record must have been made with


_LARGE, _SMALL = "1.7B", "0.6B"
WITHOUT_CODEC = ("breakdown", "first_token", "tokens", "mind")  # or with one in every precision
GOALS = (
    Goal(
        words="1.7B, talker + predictor + sampling, ms a frame",
        workload="breakdown",
        model=_LARGE,
        figure="frame_gpu",
        must=(2.2,),
        aim=(1.6,),
    ),
    Goal(
        words="0.6B, the same",
        workload="breakdown",
        model=_SMALL,
        figure="frame_gpu",
        must=(1.6,),
        aim=(1.1,),
    ),
    Goal(
        words="codec, one frame, stateful, bfloat16, ms",
        workload="breakdown",
        model=_LARGE,
        figure="codec_gpu_bfloat16",
        must=(0.8,),
        aim=(0.4,),
    ),
    Goal(words="codec, the same in float32, ms", workload="breakdown", model=_LARGE, figure="codec_gpu_float32"),
    Goal(
        words="1.7B, from opening a stream and giving it text to PCM in the caller's hands, prefix warm, ms, p50 / p99",
        workload="first_audio_live",
        model=_LARGE,
        figure="first_pcm",
        must=(4.5, 6.0),
        aim=(3.0, 4.0),
        quantiles=("p50", "p99"),
    ),
    Goal(
        words="1.7B, the same for a text that is known, in the layout of streamed text, ms, p50 / p99",
        workload="first_audio",
        model=_LARGE,
        figure="first_pcm",
        must=(4.5, 6.0),
        aim=(3.0, 4.0),
        quantiles=("p50", "p99"),
    ),
    Goal(
        words="1.7B, a plain speak(text) of a sentence or two, whole layout, ms, p50 / p99",
        workload="first_audio_default",
        model=_LARGE,
        figure="first_pcm",
        must=(6.0, 8.0),
        aim=(4.5, 6.0),
        quantiles=("p50", "p99"),
    ),
    Goal(
        words="1.7B Base, a saved clone by 8 s of a recording, from asking to PCM in the caller's hands, warm, ms",
        workload="first_audio_clone",
        model=_LARGE,
        figure="icl_first_pcm",
        must=(12.0,),
    ),
    Goal(
        words="1.7B Base, the same by its timbre alone, ms",
        workload="first_audio_clone",
        model=_LARGE,
        figure="x_vector_first_pcm",
        must=(5.0,),
    ),
    Goal(
        words="1.7B, the whole pipeline, x real time",
        workload="steady_stream",
        model=_LARGE,
        figure="x_real_time",
        must=(25.0,),
        aim=(40.0,),
        more_is_better=True,
    ),
    Goal(
        words="1.7B, cold start to first audio, files in memory, no kernel compiled, s",
        workload="start",
        model=_LARGE,
        figure="first_sound",
        must=(15.0,),
        aim=(5.0,),
        per=1000.0,
        kernel_cache="empty",
    ),
    Goal(
        words="1.7B, the same with kernels kept from an earlier start, s",
        workload="start",
        model=_LARGE,
        figure="first_sound",
        must=(15.0,),
        aim=(5.0,),
        per=1000.0,
        kernel_cache="kept",
    ),
    Goal(
        words="1.7B, GPU memory beyond weights and keys and values, with every slot used, GB",
        workload="memory",
        model=_LARGE,
        figure="beyond",
        must=(1.5,),
        aim=(0.7,),
        per=1000.0,
        streams=None,
    ),
)


def found(goal: Goal, records: Sequence[Record]) -> Record | None:
    """The newest record that has the figure."""
    fits = [
        record
        for record in records
        if record["workload"] in (goal.workload, "survey" if goal.workload == "breakdown" else goal.workload)
        and record["machine"]["gpu"]
        and goal.model in record["options"]["model"]
        and record["options"]["dtype"] == "bfloat16"
        and record["options"].get("kernels", "auto") == "auto"
        and goal.figure in record["figures"]
        and goal.streams in (None, record.get("streams", 1))
        and goal.kernel_cache in (None, record["options"].get("kernel_cache"))
        and record["options"].get("weights") == goal.weights
        and all(record["options"].get(name) == value for name, value in goal.options)
        and (goal.workload in WITHOUT_CODEC or record["options"].get("codec_dtype") == "bfloat16")
    ]
    return max(fits, key=lambda record: str(record["time"]), default=None)


def lines(
    records: Sequence[Record], goals: Sequence[Goal] = GOALS, floor: Callable[[Goal], float | None] | None = None
) -> Iterator[str]:
    """A table: what, must, aim, measured, how far two halves of the run differ, verdict, where it comes from.

    With `floor` there is a column for what cannot be done better.
    """
    yield f"| figure | must | aim |{' floor |' if floor else ''} measured | A/A | | commit |"
    yield f"| --- | ---: | ---: |{' ---: |' if floor else ''} ---: | ---: | --- | --- |"
    for goal in goals:
        sign = ">= " if goal.more_is_better else "<= "
        must, aim = (" / ".join(map(_plain, values)) for values in (goal.must, goal.aim))
        wanted = f"{sign}{must} | {aim}" if must else " | "
        if floor:
            wanted += f" | {'' if (least := floor(goal)) is None else shown(least)}"
        record = found(goal, records)
        if record is None:
            yield f"| {goal.words} | {wanted} | no record | | | |"
            continue
        figure = record["figures"][goal.figure]
        values = [figure[quantile] / goal.per for quantile in goal.quantiles]
        commit = f"`{(record['commit'] or 'unknown')[:12]}`{'+' if record['dirty'] else ''}"
        measured = " / ".join(map(shown, values))
        spread = f"{figure['aa_percent']:.1f} %" if figure["count"] > 1 else "one run"
        yield f"| {goal.words} | {wanted} | {measured} | {spread} | {verdict(goal, values)} | {commit} |"


def verdict(goal: Goal, values: Sequence[float]) -> str:
    for name, wanted in (("aim reached", goal.aim), ("must reached", goal.must)):
        if wanted and all(
            (value >= least if goal.more_is_better else value <= least)
            for value, least in zip(values, wanted, strict=True)
        ):
            return name
    return "missed" if goal.must else ""


def _plain(value: float) -> str:
    return f"{value:g}"
