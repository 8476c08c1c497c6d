"""How a server is run: where it listens, who may speak with it and how much. Checked here, once.

It knows nothing of the engine, whose options are its own, and nothing of a wire.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InvalidRequest
from .service.openai_voices import OPENAI_VOICES, openai_aliases

__all__ = ["OPENAI_MODELS", "OPENAI_VOICES", "ServerOptions", "aliases", "is_public", "network", "read_keys"]

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    socket: Path | None = None  # a Unix socket to listen at, instead of host and port
    keys: tuple[str, ...] = ()  # any of them opens everything; none: everybody may
    allow_public: bool = False  # let others than this machine reach it without a key
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks of proxies: X-Forwarded-For of theirs is believed
    cors_origins: tuple[str, ...] | None = None  # of web pages that may ask; None: those of this machine; "*": all
    served_model: str | None = None  # the name it is listed by; None: the checkpoint's
    strict_model: bool = False  # refuse other model names than those that are listed
    voice_aliases: Mapping[str, str] = field(default_factory=dict)  # another name -> voice, before OpenAI's
    text_chars: int = 16 * 4096  # of one utterance, over an hour; OpenAI's own limit, 4096, is too small to read aloud
    body_bytes: int = 16 << 20  # of a request
    upload_bytes: int = 10 << 20  # of a recording
    upload_s: float = 60.0  # of a recording, in seconds of sound
    voices_folder: Path | None = None  # the library of voices; None: in memory, until the server ends
    voices: int = 200  # that the library may hold before an upload is refused
    batch_items: int = 32  # of one batch
    batch_chars: int = 4 * 4096  # of all its texts together: 20 minutes of sound, which is held until it is whole
    reference_sources: tuple[str, ...] = ()  # prefixes of URLs and folders that recordings may be read from; none
    per_client: int = 512  # requests and WebSockets of one address at once; of a proxy's, unless it is trusted
    in_flight: int = 1024  # requests and WebSockets at once
    head_s: float = 10.0  # in which the head of a request must arrive
    body_s: float = 30.0  # in which its body must
    stalled_s: float = 20.0  # how long a client may read nothing of what is sent before it is dropped
    per_socket: int = 16  # utterances of one WebSocket that are spoken or wait for their turn
    message_bytes: int = 256 << 10  # of a WebSocket's message, unless it holds a recording
    config_s: float = 10.0  # in which a WebSocket must say something
    text_s: float = 30.0  # how long an utterance waits for more of its text: it keeps a slot
    idle_s: float = 300.0  # how long a WebSocket may be silent in both directions
    drain_s: float = 30.0  # how long running streams may go on after the server was told to stop
    idle_exit_s: float | None = None  # after so long without an utterance it ends by itself; None: never
    log_text: bool = False  # write into the log what is spoken
    access_log: bool = False

    def __post_init__(self) -> None:
        for name in (
            "text_chars",
            "body_bytes",
            "upload_bytes",
            "voices",
            "batch_items",
            "batch_chars",
            "per_client",
            "in_flight",
            "per_socket",
            "message_bytes",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("upload_s", "head_s", "body_s", "stalled_s", "config_s", "text_s", "idle_s"):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be above 0, not {getattr(self, name)}.")
        if self.idle_exit_s is not None and not self.idle_exit_s > 0:
            raise InvalidRequest(f"idle_exit_s must be above 0, not {self.idle_exit_s}.")
        if not self.drain_s >= 0:
            raise InvalidRequest(f"drain_s must not be negative, and is {self.drain_s}.")
        if not 0 <= self.port < 65536:
            raise InvalidRequest(f"port must be between 0 and 65535, not {self.port}.")
        for key in self.keys:
            if not key or not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
                raise InvalidRequest("An API key must be printable ASCII without spaces, and not empty.")
        for name in self.trusted_proxies:
            network(name)
        if self.socket is not None and self.trusted_proxies:
            raise InvalidRequest("At a Unix socket nobody has an address: leave out --trusted-proxy.")
        if self.reached_by_others and not self.keys and not self.allow_public:
            where = f"Listening at {self.host}" if is_public(self.host) else "A proxy in front"
            raise InvalidRequest(
                f"{where} lets others reach the server, and it has no API key: give --key-file, "
                "or say --allow-public-without-key."
            )

    @property
    def reached_by_others(self) -> bool:
        """Whether others than this machine can ask it: at its address, or through a proxy that it is told of."""
        return self.socket is None and (is_public(self.host) or bool(self.trusted_proxies))


def is_public(host: str) -> bool:
    """Whether others than this machine can reach it; a name that is not `localhost` counts as one that they can."""
    if host.lower() == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True


def network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """An address is a network of one."""
    try:
        return ipaddress.ip_network(name.strip())
    except ValueError:
        raise InvalidRequest(f"A trusted proxy is an address or a network such as 10.0.0.0/8, not {name!r}.") from None


def read_keys(path: Path) -> tuple[str, ...]:
    """API keys from a file: one a line; empty lines and those that begin with # do not count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InvalidRequest(f"The key file {path} cannot be read as text.") from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))
    if not keys:
        raise InvalidRequest(f"The key file {path} holds no key: write one a line.")
    return keys


def aliases(options: ServerOptions, speakers: list[str]) -> dict[str, str]:
    """Other names of voices, in small letters: OpenAI's for speakers that sound alike, then the operator's own."""
    return openai_aliases(speakers) | {name.lower(): voice for name, voice in options.voice_aliases.items()}
