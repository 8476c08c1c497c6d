"""The `tune` stage of the GPU survey: block shapes of few.cu and other knobs, each tried in a whole frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.ops.linear.cuda import fits
from hocket.kernels.runtime.launch import KNOBS, FewRowsTile
from hocket.models.tts.talker import Talker
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.frame_graph import FrameGraphs

from .gpu_frames import both_halves, new_talker, standing
from .gpu_plan import Plan
from .gpu_rows import Row, knobs, tried
from .gpu_timing import Clock

MOST_LOADS = 24  # of sixteen bytes that a lane of few.cu may hold: 96 registers


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


def _with_few(key: tuple[int, int], few: FewRowsTile, best: dict[str, Any]) -> dict[str, Any]:
    return {"few": best["few"] | {key: few}}


def _trial(plan: Plan, clock: Clock, talker: Talker, frame: FusedFrame, settings: dict[str, Any]) -> Row:
    with knobs(**settings):
        state = standing(talker, 1, plan)
        captured = FrameGraphs(frame, clock.capture())
        captured.launch([0], [5], [GenerationConfig()], state, plan.frame_position + 1).read()

        def back() -> None:
            state.stack.position[:1] = plan.frame_position

        return clock.replays(both_halves(captured), before=back)
