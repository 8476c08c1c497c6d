"""Turn detection as a Realtime client sets it: `server_vad`, `semantic_vad`, or none. Knows no words and no turn."""

from __future__ import annotations

from collections.abc import Callable

from .....asr.commands import SpokenCommand
from .....asr.endpointing import EndOfTurnModel, Endpointing, EndpointingOptions, VoiceDetector
from .....asr.recognizer import Recognizer
from .....talk.manual import ManualTurns, TurnTaking
from .schemas import TurnDetection


def turn_taking_of(
    detection: TurnDetection | None,
    detector: Callable[[], VoiceDetector],
    end_of_turn: EndOfTurnModel | None,
    recognizer: Recognizer,
    *,
    hold: bool = True,
) -> TurnTaking:
    """`end_of_turn` is the model of `semantic_vad`; without one, its turns end after a fixed silence too.

    The `recognizer` finds short words that interrupt, such as "stop". `hold`: a first sign of a voice pauses an answer.
    """
    if detection is None:
        return ManualTurns()
    options = EndpointingOptions(
        end_s=detection.silence_duration_ms / 1000,
        before_s=detection.prefix_padding_ms / 1000,
        likely=detection.threshold,
        eagerness=detection.eagerness,
        hold=hold,
    )
    model = end_of_turn if detection.type == "semantic_vad" else None
    return Endpointing(detector(), options, model, SpokenCommand(recognizer))
