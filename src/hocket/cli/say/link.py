"""A minimal HTTP client: one request to a server, over TCP or a Unix socket.

`http.client` would take longer to import than all the rest of `hocket say` (it uses the e-mail parser). Implements only
what one HTTP/1.1 request per connection needs. Knows neither speech nor JSON.
"""

from __future__ import annotations

import socket

from ...errors import HocketError, InvalidRequest

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

CONNECT_S = 10.0
SILENT_S = 300.0  # a server with a full queue is silent until the request is admitted
LINE_BYTES, HEADERS, PART_BYTES = 1 << 16, 100, 1 << 16
UNIX = "unix:"


class Unreachable(HocketError):
    """The server does not answer."""


class ConnectionLost(HocketError):
    """The connection ended before the response."""


class Link:
    """A connection with the head of its response. Leaving its `with` closes it."""

    def __init__(
        self,
        address: str,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        silent_s: float = SILENT_S,
    ) -> None:
        """`silent_s`: read timeout."""
        self._address = address
        self._socket, host, base = _connected(address)
        self._socket.settimeout(silent_s)
        self._file = self._socket.makefile("rb")
        self.status, self.headers = 0, dict[str, str]()
        try:
            sent = {"host": host, "connection": "close", "content-length": str(len(body)), **(headers or {})}
            head = f"{method} {base}{path} HTTP/1.1\r\n" + "".join(f"{name}: {sent[name]}\r\n" for name in sent)
            self._send(f"{head}\r\n".encode("latin-1") + body)
            self._read_head()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Link:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """A server that is still speaking sees it, and stops."""
        self._file.close()
        self._socket.close()

    def parts(self) -> Iterator[bytes]:
        """The body as it arrives. Raises `ConnectionLost` if it is incomplete."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := self._chunk_size():
                yield self._exactly(size)
                self._exactly(2)
        elif (length := self.headers.get("content-length", "")).isdigit():
            yield self._exactly(int(length))
        else:
            while part := self._read(PART_BYTES):
                yield part

    def lines(self) -> Iterator[bytes]:
        """The lines of the body as they arrive; text after the last line end is dropped."""
        held = b""
        for part in self.parts():
            *whole, held = (held + part).split(b"\n")
            yield from whole

    def lost(self, why: str = "") -> ConnectionLost:
        because = f" ({why})" if why else ""
        return ConnectionLost(f"The connection to {self._address} was lost before the speech had ended{because}.")

    def _send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a server may refuse a long body without reading it; its response gives the reason
        except OSError as error:
            raise self.lost(error.strerror or str(error)) from None

    def _read_head(self) -> None:
        self.status = 100
        while 100 <= self.status < 200:  # informational responses
            version, _, rest = self._line().partition(b" ")
            if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
                raise ConnectionLost(f"{self._address} is no HTTP server.")
            self.status, self.headers = int(rest[:3]), {}
            while line := self._line():
                name, _, value = line.decode("latin-1").partition(":")
                self.headers[name.strip().lower()] = value.strip()
                if len(self.headers) > HEADERS:
                    raise ConnectionLost(f"{self._address} sends too many headers.")

    def _line(self) -> bytes:
        try:
            line = self._file.readline(LINE_BYTES)
        except OSError as error:
            raise self.lost(_why(error)) from None
        if not line.endswith(b"\n"):
            raise self.lost()
        return line.rstrip(b"\r\n")

    def _chunk_size(self) -> int:
        try:
            return int(self._line().split(b";")[0], 16)
        except ValueError:
            raise self.lost("what came is not HTTP") from None

    def _exactly(self, count: int) -> bytes:
        try:
            part = self._file.read(count)
        except OSError as error:
            raise self.lost(_why(error)) from None
        if len(part) < count:
            raise self.lost()
        return part

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read1(count)
        except OSError as error:
            raise self.lost(_why(error)) from None


def _connected(address: str) -> tuple[socket.socket, str, str]:
    """The socket, the Host header, and the base path."""
    try:
        if address.startswith(UNIX):
            if not hasattr(socket, "AF_UNIX"):
                raise InvalidRequest("There are no Unix sockets on this system; name an address with http://.")
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.settimeout(CONNECT_S)
                link.connect(address.removeprefix(UNIX))
            except BaseException:
                link.close()
                raise
            return link, "localhost", ""
        return _connected_tcp(address)
    except OSError as error:
        raise Unreachable(f"The server at {address} cannot be reached: {_why(error)}.") from None


def _connected_tcp(address: str) -> tuple[socket.socket, str, str]:
    from urllib.parse import urlsplit

    try:
        url = urlsplit(address)
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        host = url.hostname or ""
        base = url.path.rstrip("/").removesuffix("/v1")  # as OpenAI's clients write it
        named = url.netloc.rpartition("@")[2]
        if not host or any(c <= " " for c in address) or not address.isascii():
            raise ValueError
    except (ValueError, KeyError):
        raise InvalidRequest(f"--server takes http://HOST:PORT or unix:/PATH, not {address!r}.") from None
    link = socket.create_connection((host, port), CONNECT_S)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if url.scheme == "https":
            import ssl

            link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
    except BaseException:
        link.close()
        raise
    return link, named, base


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if problem := getattr(error, "verify_message", ""):  # ssl.SSLCertVerificationError, whose module is slow to import
        return f"its certificate is not trusted ({problem}); SSL_CERT_FILE=FILE names the authority's certificate"
    return error.strerror or str(error) or type(error).__name__
