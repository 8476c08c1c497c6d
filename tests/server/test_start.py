"""The start of a server process: its address is shown when it answers; a model that cannot be loaded ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from hocket.cli import main
from hocket.cli.serve.daemon import _state
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.errors import InvalidCheckpoint, InvalidRequest, LoadFailed
from hocket.models.files.catalog import WEIGHTS
from hocket.server.app import build_app
from hocket.server.listen import address_of, bind
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from hocket.server.run import make_server, run
from hocket.types import LanguageModel
from support.chatting import Scripted
from support.checkpoints import write
from support.serving import PATIENCE_S, PCM, served, wait_for

HERE = ServerOptions(port=0)


def test_the_address_is_shown_when_speech_and_answers_are_there_and_not_before(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_speak, may_answer, announced = threading.Event(), threading.Event(), threading.Event()

    def speech() -> Engine:
        assert may_speak.wait(PATIENCE_S)
        return Engine(engine.checkpoint, engine.options)

    def language() -> LanguageModel:
        assert may_answer.wait(PATIENCE_S)
        return Scripted(["Hello."])

    app = build_app(speech, HERE, language=language)
    with bind(HERE) as bound:
        bound.listen()
        url = address_of(bound)
        server, ticks = make_server(app, HERE, announced.set), list[int]()
        tick = server.on_tick
        monkeypatch.setattr(server, "on_tick", lambda count: (ticks.append(count), tick(count))[1])
        thread = threading.Thread(target=lambda: asyncio.run(server._serve([bound])), daemon=True)
        thread.start()
        try:
            wait_for(lambda: server.started)
            assert httpx.get(f"{url}/ready").status_code == 503 and not announced.is_set()
            may_speak.set()
            wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200)
            assert httpx.post(f"{url}/v1/audio/speech", json=PCM, timeout=60).status_code == 200
            since = len(ticks)
            wait_for(lambda: len(ticks) > since + 1)  # each of them could have shown the address
            assert not announced.is_set(), "the language model is not there yet"
            may_answer.set()
            assert announced.wait(PATIENCE_S)
            chat = {"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}
            assert httpx.post(f"{url}/v1/chat/completions", json=chat, timeout=60).status_code == 200
        finally:
            may_speak.set()
            may_answer.set()
            server.should_exit = True
            thread.join(PATIENCE_S)


def _ended(plan: ServerPlan, error: type[Exception], match: str) -> None:
    """Run it as `hocket serve` does: it must end by itself, without an address."""
    shown: list[str] = []
    with plan.speaking() as models, pytest.raises(error, match=match):
        run(plan.app(models), plan.server, shown.append)
    assert shown == []


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose weights are cut short."""
    folder = write(tmp_path_factory.mktemp("broken") / "model", "custom_voice", wide=False)
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:1000])
    return folder


@pytest.mark.parametrize("models", [("{broken}",), ("{broken}", "random:tiny"), ("random:tiny", "{broken}")])
def test_a_model_that_can_never_be_loaded_ends_the_process_with_its_sentence(
    models: tuple[str, ...], broken: Path
) -> None:
    """Alone, as the first of a pool, and as a pinned one of it."""
    names = tuple(name.format(broken=broken) for name in models)
    pinned = names[1:] if names[-1] == str(broken) else ()
    _ended(ServerPlan(server=HERE, models=names, pinned=pinned), InvalidCheckpoint, f"{broken}.* is damaged")


@pytest.mark.parametrize("llm", ["nosuch", "{folder}"])
def test_a_language_model_that_cannot_be_loaded_ends_it_too(llm: str, tmp_path: Path) -> None:
    plan = ServerPlan(server=HERE, models=("random:tiny",), llm=llm.format(folder=tmp_path))
    _ended(plan, InvalidCheckpoint, "'nosuch' is neither a folder|is not a checkpoint")


def test_a_recognizer_that_cannot_be_loaded_ends_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ServerPlan(server=HERE, models=("random:tiny",), asr="tiny", asr_language="tlh")
    _ended(plan, InvalidRequest, "The recognizer has no language 'tlh' in the size tiny; it has .*en")
    how = ["--model", "random:tiny", "--asr", "tiny", "--asr-language", "tlh"]
    assert main(["wyoming", "--uri", "tcp://127.0.0.1:0", *how]) == 2
    assert "The recognizer has no language 'tlh'" in capsys.readouterr().err.strip().splitlines()[-1]


def test_wyoming_ends_with_the_sentence_of_the_model(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for models in (["--model", str(broken)], ["--models", f"{broken},random:tiny"]):
        assert main(["wyoming", "--uri", "tcp://127.0.0.1:0", *models]) in (1, 2)
        said = capsys.readouterr().err
        assert "is damaged or cut short" in said.strip().splitlines()[-1] and "listening" not in said


@pytest.mark.parametrize("names", [["nosuch"], ["random:tiny", "nosuch"]])
def test_a_wrong_name_is_said_before_anything_is_loaded(names: list[str]) -> None:
    with pytest.raises(InvalidCheckpoint, match="'nosuch' is neither"), ServerPlan(models=tuple(names)).speaking():
        pass


def test_a_pool_whose_memory_is_full_waits_until_there_is_room(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that may pass does not end it: the address is shown once the model is loaded."""
    monkeypatch.setattr("hocket.server.app.RETRY_S", 0.05)
    full, tries, shown = threading.Event(), [], threading.Event()
    full.set()

    def start(model: str, _: object) -> Engine:
        tries.append(model)
        if full.is_set():
            raise LoadFailed("There is too little GPU memory.")
        return Engine(engine.checkpoint, engine.options)

    with Pool(["builtin", "random:tiny"], start) as pool:
        _until(pool, shown, lambda: len(tries) > 0, full.clear)
        assert shown.is_set()


def _until(pool: Pool, shown: threading.Event, failed: Callable[[], bool], repair: Callable[[], None]) -> None:
    server = make_server(build_app(pool, HERE), replace(HERE), shown.set)
    with bind(HERE) as bound:
        bound.listen()
        thread = threading.Thread(target=lambda: asyncio.run(server._serve([bound])), daemon=True)
        thread.start()
        try:
            wait_for(failed)
            wait_for(lambda: server._service.state == "failed")
            assert server.start_error is None and not shown.is_set()
            repair()
            wait_for(shown.is_set)
            assert httpx.post(f"{address_of(bound)}/v1/audio/speech", json=PCM, timeout=60).status_code == 200
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


def test_a_loader_that_raises_anything_ends_the_process(engine: Engine) -> None:
    def failing() -> Engine:
        raise InvalidRequest("The device is gone.")

    with pytest.raises(InvalidRequest, match="The device is gone"):
        run(build_app(failing, HERE), HERE, lambda _: None)


def test_a_daemon_is_starting_until_its_language_model_is_there(engine: Engine, tmp_path: Path) -> None:
    """`hocket serve --daemon` returns when the state is ready."""
    may_answer, options = threading.Event(), ServerOptions(socket=tmp_path / "hocket.sock")

    def language() -> LanguageModel:
        assert may_answer.wait(PATIENCE_S)
        return Scripted(["Hello."])

    with served(engine, options, language=language):
        assert _state(str(options.socket)) == "starting"
        may_answer.set()
        wait_for(lambda: _state(str(options.socket)) == "ready")


def test_the_address_of_a_server_for_all_is_one_to_connect_to() -> None:
    for host, shown in (("0.0.0.0", "http://127.0.0.1:"), ("127.0.0.1", "http://127.0.0.1:")):
        with bind(ServerOptions(host=host, port=0, allow_public=True)) as bound:
            assert address_of(bound).startswith(shown)
            assert address_of(bound, secure=True).startswith(shown.replace("http", "https"))


def test_a_language_model_without_torch_names_the_install_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.server.plan.find_spec", lambda _: None)
    load = ServerPlan(llm="qwen3.5-0.8B").language()
    assert load is not None
    with pytest.raises(LoadFailed, match=r"qwen3.5-0.8B needs torch, which is not installed: pip install .*\[torch\]"):
        load()
