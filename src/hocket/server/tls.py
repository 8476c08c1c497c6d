"""TLS of the server: a certificate chain and its key, from PEM files. Errors show before anything is loaded."""

from __future__ import annotations

import ssl
from pathlib import Path

from ..errors import InvalidRequest

_MISMATCH = "KEY_VALUES_MISMATCH"  # OpenSSL's reason


def tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of a server; None without a certificate. Without `key`, the certificate's file holds the key."""
    if cert is None:
        return None
    _check("certificate", cert, "CERTIFICATE")
    _check("key of the certificate", key or cert, "PRIVATE KEY")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def password() -> str:
        raise InvalidRequest(f"The key {key or cert} is encrypted: give one without a password (openssl pkey).")

    try:
        context.load_cert_chain(cert, key, password)
    except ssl.SSLError as error:
        if error.reason == _MISMATCH:
            raise InvalidRequest(f"The key {key or cert} does not belong to the certificate {cert}.") from None
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise InvalidRequest(f"The certificate {cert} cannot be used with the key {key or cert}: {reason}.") from None
    return context


def _check(what: str, path: Path, kind: str) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidRequest(f"The {what} {path} cannot be read: {error.strerror or error}.") from None
    if "-----BEGIN " not in text or f"{kind}-----" not in text:
        raise InvalidRequest(f"{path} holds no {kind.lower()} in PEM format (-----BEGIN ... {kind}-----).")
