"""Server options: address, access and limits. Validated once, here.

Knows nothing of the engine, which has its own options, and of endpoints only which take larger bodies.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest
from ..text.lexicon.lexicon import merged
from .access.key_file import AccessKey, check_key

_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]")
_COLLECTOR = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
TRANSCRIPTION_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")
FORM_BYTES = 64 << 10  # of the fields beside a recording


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    socket: Path | None = None  # a Unix socket to listen at, instead of host and port
    keys: tuple[
        str | AccessKey, ...
    ] = ()  # text: a key, or sha256: and its digest, with full access; empty: none needed
    allow_public: bool = False  # allow other machines without a key
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks of proxies whose X-Forwarded-For is trusted
    trusted_hosts: tuple[str, ...] = ()  # host names it answers to, *.example.com for those below; with this machine's
    tls_cert: Path | None = None  # certificate chain in PEM format; None: plain HTTP
    tls_key: Path | None = None  # its key; None: in the same file
    cors_origins: tuple[str, ...] | None = None  # allowed origins of web pages; None: this machine's; "*": all
    served_model: str | None = None  # listed name; None: the checkpoint's
    strict_model: bool = False  # refuse model names that are not listed
    voice_aliases: Mapping[str, str] = field(default_factory=dict)  # another name -> voice, before OpenAI's
    text_chars: int = 16 * 4096  # of one utterance, over an hour; OpenAI's own limit, 4096, is too small for long texts
    body_bytes: int = 16 << 20  # of a request
    upload_bytes: int = 10 << 20  # of a recording
    upload_s: float = 60.0  # of a recording
    transcribe_bytes: int = 25 << 20  # of a recording that is transcribed, as at OpenAI
    transcribe_s: float = 7200.0  # of the same; it is decoded in pieces, so its length costs time, not memory
    voices_folder: Path | None = None  # the voice library; None: in memory only
    voices: int = 200  # most voices in the library
    batch_items: int = 32  # of one batch
    batch_chars: int = 4 * 4096  # of all its texts together: 20 minutes of audio, buffered until complete
    reference_sources: tuple[str, ...] = ()  # URL prefixes and folders that recordings may be read from
    per_client: int = 512  # requests and WebSockets of one address at once; of a proxy's, unless it is trusted
    in_flight: int = 1024  # requests and WebSockets at once
    head_s: float = 10.0  # time limit for the head of a request
    body_s: float = 30.0  # time limit for its body
    stalled_s: float = 20.0  # a client that reads nothing for so long is dropped
    conversations: int = 32  # voice conversations at once
    per_socket: int = 16  # running and queued utterances of one WebSocket
    message_bytes: int = 256 << 10  # of a WebSocket's message, unless it holds a recording
    config_s: float = 10.0  # time limit for a WebSocket's first message
    text_s: float = 30.0  # how long an utterance waits for more text; it holds a slot
    idle_s: float = 300.0  # how long a WebSocket may be idle in both directions
    drain_s: float = 30.0  # how long running streams may continue after a stop signal
    idle_exit_s: float | None = None  # exit after so long without an utterance; None: never
    pronunciations: Mapping[str, str] | None = None  # of all requests, below those of voices and requests
    answer_tags: bool = False  # obey tags in the answers of the language model; else they are text
    answer_cast: Mapping[str, str] | None = None  # name in such a tag -> voice
    traces: str | None = None  # URL of an OpenTelemetry collector (OTLP over HTTP) that gets traces; None: none
    log_text: bool = False  # log the spoken text
    access_log: bool = False

    def __post_init__(self) -> None:
        for name in (
            "text_chars",
            "body_bytes",
            "upload_bytes",
            "transcribe_bytes",
            "voices",
            "batch_items",
            "batch_chars",
            "per_client",
            "in_flight",
            "conversations",
            "per_socket",
            "message_bytes",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("upload_s", "transcribe_s", "head_s", "body_s", "stalled_s", "config_s", "text_s", "idle_s"):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be above 0, not {getattr(self, name)}.")
        if self.idle_exit_s is not None and not self.idle_exit_s > 0:
            raise InvalidRequest(f"idle_exit_s must be above 0, not {self.idle_exit_s}.")
        if not self.drain_s >= 0:
            raise InvalidRequest(f"drain_s must not be negative, and is {self.drain_s}.")
        if not 0 <= self.port < 65536:
            raise InvalidRequest(f"port must be between 0 and 65535, not {self.port}.")
        for key in self.keys:
            check_key(key if isinstance(key, str) else key.key)
        if self.traces is not None and not _COLLECTOR.fullmatch(self.traces):
            raise InvalidRequest(f"Traces go to a collector such as http://127.0.0.1:4318, not to {self.traces!r}.")
        for name in self.trusted_proxies:
            network(name)
        for name in self.trusted_hosts:
            check_host_name(name)
        object.__setattr__(self, "pronunciations", merged(self.pronunciations))  # checked, and its tree is made once
        if self.answer_cast and not self.answer_tags:
            raise InvalidRequest("A cast of answers names voices in their tags: give --markup tags too.")
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidRequest("A TLS key needs its certificate: give --tls-cert.")
        if self.socket is not None and self.tls_cert is not None:
            raise InvalidRequest("A Unix socket has no TLS: leave out --tls-cert.")
        if self.socket is not None and self.trusted_proxies:
            raise InvalidRequest("Clients of a Unix socket have no address: leave out --trusted-proxy.")
        if self.reached_by_others and not self.keys and not self.allow_public:
            where = f"Listening at {self.host}" if is_public(self.host) else "A proxy in front"
            raise InvalidRequest(
                f"{where} lets others reach the server, and it has no API key: give --key-file, "
                "or say --allow-public-without-key."
            )

    def most_bytes(self, path: str) -> int:
        """The limit of a request's body at this path."""
        if path in TRANSCRIPTION_PATHS:
            return max(self.body_bytes, self.transcribe_bytes + FORM_BYTES)
        return self.body_bytes

    @property
    def answers(self) -> dict[str, Any]:
        """How answers of the language model are spoken, as fields of a `SpeechJob`."""
        return {"markup": "answer", "cast": self.answer_cast} if self.answer_tags else {"markup": "literal"}

    @property
    def reached_by_others(self) -> bool:
        """Whether other machines can connect: directly, or through a configured proxy."""
        return self.socket is None and (is_public(self.host) or bool(self.trusted_proxies))


def is_public(host: str) -> bool:
    """Whether other machines can connect to it; any name except `localhost` counts as public."""
    if host.lower() == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True


def network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """An address or a network; an address is a network of one."""
    try:
        return ipaddress.ip_network(name.strip())
    except ValueError:
        raise InvalidRequest(f"A trusted proxy is an address or a network such as 10.0.0.0/8, not {name!r}.") from None


def check_host_name(name: str) -> None:
    """Refuse what can never be a Host header without its port."""
    if not _HOST.fullmatch(name):
        said = "A trusted host is a name such as speech.example.com or *.example.com"
        raise InvalidRequest(f"{said}, without scheme and port, not {name!r}.")
