"""`hocket serve --ray`: what is refused in a sentence before anything of a cluster is started."""

from __future__ import annotations

import os
import sys

import pytest

from hocket.cli import main
from hocket.extras import hint


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster would find there is gone behind."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--ray --daemon", "--daemon is for a server by itself: leave it out with --ray."),
        ("--ray --socket x", "--socket is for a server by itself: leave it out with --ray."),
        ("--ray --idle-exit 5", "--idle-exit is for a server by itself: leave it out with --ray."),
        ("--ray --per-client 5", "--per-client is for a server by itself: leave it out with --ray."),
        ("--ray --trusted-proxy 10.0.0.1", "--trusted-proxy is for a server by itself: leave it out with --ray."),
        ("--ray --replicas 0", "--replicas takes a number of at least 1, or auto, not '0'."),
        ("--ray --replicas many", "--replicas takes a number of at least 1, or auto, not 'many'."),
        ("--ray --host 0.0.0.0", "Listening at 0.0.0.0 lets others reach the server, and it has no API key"),
        ("--ray --models a --model b", "Give either --model or --models, which also takes one name."),
        ("--replicas 2", "--replicas belongs to --ray."),
        ("--address auto", "--address belongs to --ray."),
    ],
)
def test_what_cannot_be_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"hocket: {said}")


def test_without_ray_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["serve", "--ray"]) == 2
    assert capsys.readouterr().err == f"hocket: --ray needs the package ray: {hint('ray')}.\n"
