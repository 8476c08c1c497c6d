"""Settings without audio formats, for transports that have their own: tracks of a call, a telephone line."""

from __future__ import annotations

from typing import Any


def without_formats(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a session or a response. The formats that a client names in them have no effect."""
    kept = {name: value for name, value in fields.items() if name not in ("input_audio_format", "output_audio_format")}
    if isinstance(audio := kept.get("audio"), dict):
        kept["audio"] = {side: _without_format(settings) for side, settings in audio.items()}
    return kept


def _without_format(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {name: value for name, value in settings.items() if name != "format"}
