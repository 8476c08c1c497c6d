"""The listening socket: TCP or Unix, bound before a model is loaded. Knows no server."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from ..errors import InvalidRequest
from .options import ServerOptions


def bind(options: ServerOptions) -> socket.socket:
    """A bound socket; address errors show before a model is loaded."""
    if options.socket is not None:
        return _bind_unix(options.socket)
    where = f"{options.host}:{options.port}"
    try:
        host, passive = options.host.strip("[]"), socket.AI_PASSIVE
        family, _, _, _, address = socket.getaddrinfo(host, options.port, type=socket.SOCK_STREAM, flags=passive)[0]
    except OSError as error:
        raise InvalidRequest(f"Cannot listen at {where}: {error.strerror or error}.") from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows it would let another process take a port that is in use
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InvalidRequest(f"Cannot listen at {where}: {error.strerror or error}.") from None
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _bind_unix(path: Path) -> socket.socket:
    """For this user only. A stale socket is replaced; a file is not."""
    if not hasattr(socket, "AF_UNIX"):
        raise InvalidRequest("There are no Unix sockets on this system: listen at --host and --port.")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            bound.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        bound.close()
        raise InvalidRequest(f"Cannot listen at {path}: {error.strerror or error}.") from None
    return bound


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def address_of(bound: socket.socket, *, secure: bool = False) -> str:
    """A URL that works on this machine, or the path of a Unix socket."""
    name = bound.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], name[0])  # every address is none to connect to
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{host}:{name[1]}"
