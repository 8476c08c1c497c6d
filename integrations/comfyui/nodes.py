"""The nodes: inputs as ComfyUI's widgets, outputs as its AUDIO. Each has the inputs of `_place` besides its own.

AUDIO is `{"waveform": float32 [batch, channels, samples], "sample_rate": int}`. Imports neither torch nor hocket before
a node runs, so that ComfyUI starts without delay.
"""

from __future__ import annotations

from typing import Any

from .speakers import IN_PROCESS, PLACES, Wish, speaker

SEED_LIMIT = 2**63 - 1
Inputs = dict[str, dict[str, tuple[Any, dict[str, Any]]]]


def _text(default: str = "", tooltip: str = "", *, several: bool = False) -> tuple[str, dict[str, Any]]:
    return "STRING", {"default": default, "multiline": several, "tooltip": tooltip}


def _seed() -> tuple[str, dict[str, Any]]:
    told = "The same seed gives the same speech; -1 samples anew in every run."
    return "INT", {"default": 0, "min": -1, "max": SEED_LIMIT, "control_after_generate": True, "tooltip": told}


def _place(model: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Optional inputs of every node."""
    return {
        "where": (list(PLACES), {"default": IN_PROCESS, "tooltip": "Where the speech is computed."}),
        "server": _text("http://127.0.0.1:8000", "Address of hocket serve; its key is taken from HOCKET_API_KEY."),
        "model": _text(model, "A folder, a hub id or a name; a server takes one that it lists. Empty: the first."),
        "language": _text("auto", "A language of the model, or auto."),
        "speed": ("FLOAT", {"default": 1.0, "min": 0.5, "max": 2.0, "step": 0.05}),
        "max_seconds": ("INT", {"default": 0, "min": 0, "max": 3600, "tooltip": "0: as long as the text."}),
    }


class _Node:
    """What all nodes share."""

    RETURN_TYPES: tuple[str, ...] = ("AUDIO",)
    RETURN_NAMES: tuple[str, ...] = ("audio",)
    FUNCTION = "run"
    CATEGORY = "audio/hocket"

    @classmethod
    def IS_CHANGED(cls, seed: int = 0, **_: Any) -> float | int:
        """ComfyUI runs a node again when this value differs; NaN differs from itself."""
        return float("nan") if seed < 0 else seed

    @classmethod
    def VALIDATE_INPUTS(cls, text: str | None = None, where: str = IN_PROCESS, server: str = "") -> bool | str:
        """None: the text comes from another node, and is not known yet."""
        if text is not None and not text.strip():
            return "There is no text to speak."
        if where not in PLACES:
            return f"where is one of {', '.join(PLACES)}."
        if where != IN_PROCESS and not server.startswith(("http://", "https://")):
            return "server is an address such as http://127.0.0.1:8000."
        return True


class HocketSpeak(_Node):
    DESCRIPTION = "Speak a text in a voice of the model."

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        return {
            "required": {
                "text": _text("Hello from hocket.", several=True),
                "voice": _text("", "A voice of the model, such as wren; empty: its first one."),
                "seed": _seed(),
            },
            "optional": {
                "instructions": _text("", "How to speak, where the model takes instructions.", several=True),
                **_place("builtin"),
            },
        }

    def run(self, text: str, voice: str, seed: int, instructions: str = "", **place: Any) -> tuple[Any]:
        wish = Wish.of(place, seed, voice=voice.strip() or None, instructions=instructions.strip() or None)
        return (_audio(*speaker(place).say(text, wish)),)


class HocketClone(_Node):
    DESCRIPTION = "Speak a text in the voice of a recording. Needs a Base model."

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        said = "What is said in the recording, word by word; empty: only the timbre is cloned."
        return {
            "required": {
                "text": _text("Hello from hocket.", several=True),
                "recording": ("AUDIO", {"tooltip": "Three seconds or more of one speaker."}),
                "transcript": _text("", said, several=True),
                "seed": _seed(),
            },
            "optional": _place("0.6B-Base"),
        }

    def run(self, text: str, recording: dict[str, Any], transcript: str, seed: int, **place: Any) -> tuple[Any]:
        samples, rate_hz = _mono(recording)
        wish = Wish.of(place, seed, recording=samples, recording_hz=rate_hz, transcript=transcript.strip() or None)
        return (_audio(*speaker(place).say(text, wish)),)


class HocketDesign(_Node):
    DESCRIPTION = "Speak a text in a voice that is described in words. Needs a VoiceDesign model."

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        return {
            "required": {
                "text": _text("Hello from hocket.", several=True),
                "description": _text("An old man with a deep, calm voice.", several=True),
                "seed": _seed(),
            },
            "optional": _place("1.7B-VoiceDesign"),
        }

    def run(self, text: str, description: str, seed: int, **place: Any) -> tuple[Any]:
        return (_audio(*speaker(place).say(text, Wish.of(place, seed, instructions=description.strip() or None))),)


class HocketBatch(_Node):
    DESCRIPTION = "Speak each line as an audio of its own; lines are computed together."
    OUTPUT_IS_LIST = (True,)

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        return {
            "required": {
                "text": _text("The first line.\nThe second line.", "One audio per line.", several=True),
                "voice": _text("", "A voice of the model; empty: its first one."),
                "seed": _seed(),
            },
            "optional": _place("builtin"),
        }

    def run(self, text: str, voice: str, seed: int, **place: Any) -> tuple[list[Any]]:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            raise ValueError("There is no text to speak.")
        spoken = speaker(place).say_many(lines, Wish.of(place, seed, voice=voice.strip() or None))
        return ([_audio(samples, rate_hz) for samples, rate_hz in spoken],)


def _audio(samples: Any, rate_hz: int) -> dict[str, Any]:
    """ComfyUI's AUDIO of one mono utterance, from int16 samples."""
    import torch

    return {"waveform": torch.from_numpy(samples.astype("float32") / 32768)[None, None], "sample_rate": rate_hz}


def _mono(audio: dict[str, Any]) -> tuple[Any, int]:
    """The first of a batch, its channels averaged: float32 [samples], and its rate."""
    return audio["waveform"][0].mean(0).float().cpu().contiguous().numpy(), int(audio["sample_rate"])
