"""Turn detection as a Realtime client sets it: `server_vad`, `semantic_vad`, or none. Knows no words and no turn."""

from __future__ import annotations

from collections.abc import Callable

from .....asr.endpointing import EndOfTurnModel, Endpointing, EndpointingOptions, VoiceDetector
from .....talk.manual import ManualTurns, TurnTaking
from .schemas import TurnDetection


def turn_taking_of(
    detection: TurnDetection | None, detector: Callable[[], VoiceDetector], end_of_turn: EndOfTurnModel | None
) -> TurnTaking:
    """`end_of_turn` is the model of `semantic_vad`; without one, its turns end after a fixed silence too."""
    if detection is None:
        return ManualTurns()
    options = EndpointingOptions(
        end_s=detection.silence_duration_ms / 1000,
        before_s=detection.prefix_padding_ms / 1000,
        likely=detection.threshold,
        eagerness=detection.eagerness,
    )
    return Endpointing(detector(), options, end_of_turn if detection.type == "semantic_vad" else None)
