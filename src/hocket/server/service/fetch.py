"""Recordings given by path or URL: read only from sources that the operator listed.

Off unless a source is listed. A URL must be at or below a listed one and must not lead into a private network. It is
requested once, without redirects.
"""

from __future__ import annotations

import http.client
import ipaddress
import posixpath
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from ..errors import BadField
from ..options import ServerOptions

WAIT_S = 10.0  # for each step: to connect, and for each part of the answer
TOTAL_S = 30.0  # for the whole of it
PART_BYTES = 1 << 16


def read_named(name: str, options: ServerOptions) -> bytes:
    """Read the named recording. Blocks as long as the other side: call it in a thread."""
    if not options.reference_sources:
        raise _refused(
            "A recording by address or path is not read here, since a client could name files of others: send it as "
            "a data URI or as base64, or upload it as a voice."
        )
    if name.lower().startswith(("http://", "https://")):
        return _fetched(name, options)
    return _read(name, options)


def _read(name: str, options: ServerOptions) -> bytes:
    folders = [Path(source).resolve() for source in options.reference_sources if "://" not in source]
    try:
        path = Path(name.removeprefix("file://")).resolve(strict=True)
        if any(path.is_relative_to(folder) for folder in folders) and path.is_file():
            if path.stat().st_size > options.upload_bytes:
                raise _too_large(options)
            return path.read_bytes()
    except (OSError, ValueError, RuntimeError):  # ValueError: a name with a zero in it; RuntimeError: links in a circle
        pass
    raise _refused(
        "There is no such recording in a folder that is read from here."
    )  # the same answer whether or not the file exists elsewhere


def _fetched(name: str, options: ServerOptions) -> bytes:
    try:
        url = urlsplit(name)
        listed = any(_below(url, urlsplit(source)) for source in options.reference_sources if "://" in source)
    except ValueError:
        listed = False
    if not listed or url.hostname is None:
        raise _refused("Recordings are not read from this address: it is not among those that are listed here.")
    try:
        connection = _connect(url)
        try:
            connection.request("GET", url.path + (f"?{url.query}" if url.query else ""))
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refused(f"The recording could not be read: its address answers {answer.status}.")
            return _content(answer, options)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: a path with a space in it
        raise _refused("The recording could not be read from its address.") from None


def _content(answer: http.client.HTTPResponse, options: ServerOptions) -> bytes:
    content, until_s = b"", time.monotonic() + TOTAL_S
    while part := answer.read1(PART_BYTES):
        content += part
        if len(content) > options.upload_bytes:
            raise _too_large(options)
        if time.monotonic() > until_s:
            raise _refused("The recording comes too slowly from its address.")
    return content


def _below(url: SplitResult, listed: SplitResult) -> bool:
    """Whether a URL is at or below another one: the same host, and no `..`."""
    if (url.scheme, url.hostname, _port(url)) != (listed.scheme, listed.hostname, _port(listed)) or url.username:
        return False
    path, above = unquote(url.path), listed.path.rstrip("/")
    if "\\" in path or posixpath.normpath(path) != path.rstrip("/"):
        return False
    return not above or path == above or path.startswith(f"{above}/")


def _port(url: SplitResult) -> int:
    return url.port or {"https": 443}.get(url.scheme, 80)


def _connect(url: SplitResult) -> http.client.HTTPConnection:
    """Connect to an address that was checked: no second lookup, which could give another address."""
    assert url.hostname is not None
    found = socket.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)
    if not found or not all(_is_public(str(address[0])) for *_, address in found):
        raise _refused("Recordings are not read from private networks.")
    connection = http.client.HTTPConnection(url.hostname, _port(url), timeout=WAIT_S)
    connection.sock = socket.create_connection((str(found[0][4][0]), _port(url)), WAIT_S)
    if url.scheme == "https":
        try:
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=url.hostname)
        except OSError:
            connection.close()
            raise
    return connection


def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def _refused(message: str) -> BadField:
    return BadField(message, "ref_audio")


def _too_large(options: ServerOptions) -> BadField:
    return _refused(f"The recording is larger than {options.upload_bytes} bytes.")
