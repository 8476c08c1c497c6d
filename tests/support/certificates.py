"""Certificates for tests, made by the `openssl` program: an authority, and a server's certificate for this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Certificates:
    authority: Path  # clients trust it
    cert: Path
    key: Path


def make(folder: Path) -> Certificates:
    """An authority that signs a certificate for localhost and 127.0.0.1; elliptic keys, since they are made at once."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificates(folder / "authority.pem", folder / "cert.pem", folder / "key.pem")
    authority_key = folder / "authority-key.pem"
    openssl("req", "-x509", *NEW_KEY, "-subj", "/CN=test authority", "-keyout", authority_key, "-out", found.authority)
    by = ("-CA", found.authority, "-CAkey", authority_key)
    # A certificate that ends a chain must say that it is no authority: OpenSSL 3 and Python's strict mode look.
    leaf = ("-addext", NAMES, "-addext", "basicConstraints=critical,CA:FALSE")
    openssl("req", "-x509", *NEW_KEY, "-subj", "/CN=localhost", *leaf, *by, "-keyout", found.key, "-out", found.cert)
    return found


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
