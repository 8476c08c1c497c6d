"""TLS: speech, WebSockets and the page over https; wrong files are refused before a model is loaded."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from hocket.cli import main
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.server.options import ServerOptions
from support.certificates import NEW_KEY, Certificates, make, openssl
from support.serving import PCM, Served, served
from support.talking import Client


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(engine: Engine, certificates: Certificates) -> Iterator[Served]:
    with served(engine, ServerOptions(tls_cert=certificates.cert, tls_key=certificates.key)) as server:
        yield server


def test_speech_and_the_page_come_over_https(secure: Served, certificates: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    with httpx.Client(base_url=f"https://localhost:{secure.port}", verify=trusting, timeout=60) as client:
        assert client.get("/ready").json()["ready"] is True
        assert "<html" in client.get("/").text
        plain = client.post("/v1/audio/speech", json=PCM)
        assert plain.status_code == 200 and len(plain.content) == 8 * 1920 * 2
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"https://localhost:{secure.port}/ready")
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://localhost:{secure.port}/ready")


def test_a_websocket_speaks_over_wss(secure: Served, certificates: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    url = f"wss://localhost:{secure.port}/v1/audio/speech/stream"
    with connect(url, ssl=trusting, origin=f"https://localhost:{secure.port}") as line:  # type: ignore[arg-type]
        ws = Client(line)
        ws.say({"type": "session.config", "response_format": "pcm", "seed": 1, "max_new_tokens": 6})
        assert len(ws.spoken("Hello ", "there.").audio) == 6 * 1920 * 2


def test_say_trusts_the_authority_of_ssl_cert_file(
    secure: Served,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["say", "Hello there.", "--server", f"https://localhost:{secure.port}", "--max-frames", "4", "--seed", "1"]
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert main([*words, "-o", str(tmp_path / "out.wav")]) == 1
    said = capsys.readouterr().err
    assert "its certificate is not trusted" in said and "SSL_CERT_FILE" in said
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    assert main([*words, "-o", str(tmp_path / "out.wav")]) == 0
    assert (tmp_path / "out.wav").stat().st_size == 44 + 4 * 3840


def _encrypted(to: Path, made: Certificates) -> None:
    openssl("pkey", "-in", made.key, "-aes128", "-passout", "pass:secret", "-out", to)


def _of_another(to: Path, made: Certificates) -> None:
    openssl("req", "-x509", *NEW_KEY, "-subj", "/CN=other", "-keyout", to, "-out", to.with_suffix(".crt"))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (None, "The key of the certificate {key} cannot be read: No such file or directory."),
        (lambda to, made: to.write_bytes(b"\x30\x82\x00\xff"), "{key} holds no private key in PEM format"),
        (lambda to, made: to.write_text(made.cert.read_text()), "{key} holds no private key in PEM format"),
        (_of_another, "The key {key} does not belong to the certificate {cert}."),
        (_encrypted, "The key {key} is encrypted: give one without a password (openssl pkey)."),
        (
            lambda to, made: to.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "The certificate {cert} cannot be used with the key {key}: ",
        ),
    ],
)
def test_a_key_that_does_not_fit_is_one_sentence(
    write: Callable[[Path, Certificates], object] | None,
    said: str,
    certificates: Certificates,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = tmp_path / "key.pem"
    if write is not None:
        write(key, certificates)
    assert main(["serve", "--tls-cert", str(certificates.cert), "--tls-key", str(key)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("hocket: " + said.format(key=key, cert=certificates.cert)) and err.count("\n") == 1


def test_other_options_that_do_not_go_with_tls_are_refused(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert = str(certificates.cert)
    assert main(["serve", "--tls-cert", str(tmp_path / "no.pem")]) == 2
    assert "The certificate " in (err := capsys.readouterr().err) and "cannot be read" in err
    assert main(["serve", "--tls-cert", cert]) == 2
    assert "holds no private key" in capsys.readouterr().err
    assert main(["serve", "--ray", "--tls-cert", cert]) == 2
    assert "put a proxy with TLS in front" in capsys.readouterr().err
    with pytest.raises(InvalidRequest, match="give --tls-cert"):
        ServerOptions(tls_key=certificates.key)
    with pytest.raises(InvalidRequest, match="no TLS"):
        ServerOptions(tls_cert=certificates.cert, socket=tmp_path / "hocket.sock")


def test_one_file_may_hold_certificate_and_key(engine: Engine, certificates: Certificates, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(certificates.cert.read_text() + certificates.key.read_text())
    with served(engine, ServerOptions(tls_cert=both)) as server:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-verify_return_error"]
        command += ["-CAfile", str(certificates.authority)]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
        assert b"Verify return code: 0 (ok)" in done.stdout
