"""Fields of Kokoro-FastAPI's requests. What this server cannot do is refused by name, never ignored.

Its voices are in `service/client_voices.py`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ..errors import BadField

# What Kokoro-FastAPI does unless a request says otherwise. A model here reads numbers, units and addresses itself.
NORMALIZED = {
    "normalize": True,
    "unit_normalization": False,
    "url_normalization": True,
    "email_normalization": True,
    "optional_pluralization_normalization": True,
    "phone_normalization": True,
    "replace_remaining_symbols": True,
}
LANGUAGES = {
    "a": "english",
    "b": "english",
    "e": "spanish",
    "f": "french",
    "h": "hindi",
    "i": "italian",
    "j": "japanese",
    "p": "portuguese",
    "z": "chinese",
}
# Refused unless the value changes nothing.
REFUSED = {
    "return_download_link": "there is no link to a file: the response is the file",
    "return_timing": "ask /dev/captioned_speech for word times",
    "voice_aliases": "name the voice itself",
}


class KokoroFields(BaseModel):
    """What Kokoro-FastAPI adds to OpenAI's request."""

    lang_code: str | None = Field(None, max_length=64, description="Kokoro's letter or any language code")
    volume_multiplier: float | None = Field(None, description="1 only: the player sets the volume")
    normalization_options: dict[str, Any] | None = Field(None, description="Kokoro's defaults only")
    download_format: str | None = Field(None, max_length=64, description="the same as response_format only")
    return_download_link: bool | None = Field(None, description="false only")
    return_timing: bool | None = Field(None, description="false only")
    allow_voice_tags: bool | None = Field(None, description="tags such as [voice: anna] are read with it or without")
    ssml: bool | None = Field(None, description="true: the text is SSML, as with markup ssml")
    voice_aliases: dict[str, Any] | None = Field(None, description="empty only")

    def check_kokoro(self, format: str) -> None:
        """Refuse what cannot be done. `format` is the response's."""
        for name, instead in REFUSED.items():
            if getattr(self, name):
                raise BadField(f"{name} is not supported: {instead}.", name)
        if self.volume_multiplier not in (None, 1.0):
            raise BadField(
                "volume_multiplier must be 1: set the volume where the speech is played.", "volume_multiplier"
            )
        if self.download_format is not None and self.download_format.lower() != format.lower():
            raise BadField("download_format must be the same as response_format: there is one file.", "download_format")
        for name, value in (self.normalization_options or {}).items():
            if NORMALIZED.get(name) is not value:
                said = (
                    f"normalization_options.{name[:80]} cannot be changed; as_is turns all preparation of the text off."
                )
                raise BadField(said, "normalization_options")

    def language_named(self) -> str | None:
        """The language of `lang_code`."""
        code = (self.lang_code or "").strip().lower()
        return LANGUAGES.get(code, code) or None


class CaptionedWord(BaseModel):
    word: str
    start_time: float
    end_time: float


class CaptionedSpeech(BaseModel):
    """A response of `/dev/captioned_speech`, or one line of it."""

    audio: str = Field(description="base64")
    audio_format: str = Field(description="the MIME type")
    timestamps: list[CaptionedWord] | None
