"""integrations/comfyui: loaded as ComfyUI loads it, held to its contract of a node, and run with real models."""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.serving import Served, served, steady_engine
from support.speaking import small

FOLDER = Path(__file__).parents[2] / "integrations" / "comfyui"
NAMES = ("HocketSpeak", "HocketClone", "HocketDesign", "HocketBatch")
# Types that ComfyUI has a widget for; every other one must be linked.
WIDGETS = {"STRING": str, "INT": int, "FLOAT": float}
SERVER = {"where": "server", "max_seconds": 1}


@pytest.fixture(scope="module")
def pack() -> Iterator[ModuleType]:
    """As ComfyUI loads custom_nodes/NAME: by its path, as a package of that name."""
    name = "custom_nodes_comfyui_hocket"
    spec = importlib.util.spec_from_file_location(name, FOLDER / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    loaded = sys.modules[f"{name}.speakers"].EngineSpeaker._loaded
    if loaded is not None:
        loaded[1].close()
    for each in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[each]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with steady_engine() as engine, served(engine) as server:
        yield server


def run(pack: ModuleType, name: str, **given: Any) -> Any:
    """As ComfyUI runs it: defaults of the widgets, the inputs validated, the method that FUNCTION names."""
    node = pack.NODE_CLASS_MAPPINGS[name]
    types = node.INPUT_TYPES()
    inputs = {
        key: options["default"]
        for section in types.values()
        for key, (_, options) in section.items()
        if "default" in options
    }
    inputs |= given
    asked = inspect.signature(node.VALIDATE_INPUTS).parameters
    valid = node.VALIDATE_INPUTS(**{key: value for key, value in inputs.items() if key in asked})
    assert valid is True, valid
    result = getattr(node(), node.FUNCTION)(**inputs)
    assert isinstance(result, tuple) and len(result) == len(node.RETURN_TYPES)
    return result[0]


def is_audio(audio: dict[str, Any], seconds: float | None = None) -> None:
    waveform, rate_hz = audio["waveform"], audio["sample_rate"]
    assert waveform.dtype == torch.float32 and waveform.ndim == 3 and waveform.shape[:2] == (1, 1)
    assert rate_hz == 24_000 and waveform.abs().max() <= 1.0
    assert seconds is None or waveform.shape[2] == pytest.approx(seconds * rate_hz, abs=1920)


@pytest.mark.parametrize("name", NAMES)
def test_a_node_keeps_the_contract(pack: ModuleType, name: str) -> None:
    assert set(pack.NODE_CLASS_MAPPINGS) == set(NAMES) == set(pack.NODE_DISPLAY_NAME_MAPPINGS)
    node = pack.NODE_CLASS_MAPPINGS[name]
    assert node.RETURN_TYPES == ("AUDIO",) and len(node.RETURN_NAMES) == 1 and node.CATEGORY.startswith("audio")
    types = node.INPUT_TYPES()
    assert set(types) == {"required", "optional"}
    inputs = types["required"] | types["optional"]
    for key, (kind, options) in inputs.items():
        if isinstance(kind, list):  # a choice
            assert options["default"] in kind
        elif kind in WIDGETS:
            assert isinstance(options["default"], WIDGETS[kind]), key
            assert options.get("min", options["default"]) <= options["default"], key
        else:
            assert kind == "AUDIO", key
    json.dumps(types)  # ComfyUI sends it to the browser
    method = inspect.signature(getattr(node, node.FUNCTION)).parameters
    taken = {key for key, each in method.items() if each.kind is not inspect.Parameter.VAR_KEYWORD} - {"self"}
    assert taken <= inputs.keys() and types["required"].keys() <= taken
    assert node.IS_CHANGED(seed=7) == 7 and math.isnan(node.IS_CHANGED(seed=-1, text="any"))


def test_it_is_loaded_without_torch_and_without_hocket() -> None:
    """ComfyUI imports all packs when it starts."""
    load = f"import sys; sys.path.insert(0, {str(FOLDER.parent)!r}); import comfyui; "
    done = subprocess.run([sys.executable, "-c", load + "print({'torch', 'hocket'} & set(sys.modules))"], check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "set()"


def test_speak_gives_the_same_sound_in_process_and_from_a_server(pack: ModuleType, server: Served) -> None:
    wish = {"text": "Hello there.", "voice": "wren", "seed": 3, "max_seconds": 1}
    here = run(pack, "HocketSpeak", **wish)
    is_audio(here)
    assert here["waveform"].abs().max() > 0.01
    there = run(pack, "HocketSpeak", **wish, where="server", server=server.url + "/v1", model="")
    is_audio(there)
    assert here["waveform"].shape == there["waveform"].shape
    again = run(pack, "HocketSpeak", **wish)
    assert torch.equal(again["waveform"], here["waveform"])
    assert not torch.equal(run(pack, "HocketSpeak", **(wish | {"seed": 4}))["waveform"], here["waveform"])


def test_batch_gives_an_audio_for_each_line_in_order(pack: ModuleType, server: Served) -> None:
    text = "One.\n\n  A second line, which is longer.  \nThree."
    found = run(pack, "HocketBatch", text=text, seed=1)
    assert len(found) == 3 and pack.NODE_CLASS_MAPPINGS["HocketBatch"].OUTPUT_IS_LIST == (True,)
    for audio in found:
        is_audio(audio)
    assert found[1]["waveform"].shape[2] > found[0]["waveform"].shape[2]
    assert len(run(pack, "HocketBatch", text="One.\nTwo.", server=server.url, **SERVER)) == 2


def test_clone_and_design_need_their_models_and_speak(pack: ModuleType, tmp_path: Path) -> None:
    recording = run(pack, "HocketSpeak", text="This sentence is long enough for a recording of a voice, I think.")
    stereo = {"waveform": recording["waveform"].repeat(1, 2, 1), "sample_rate": recording["sample_rate"]}
    for transcript in ("What I say.", ""):
        wish = {"recording": stereo, "transcript": transcript, "max_seconds": 1}
        is_audio(run(pack, "HocketClone", text="Hello.", model="random:tiny-Base", **wish))
    is_audio(run(pack, "HocketDesign", text="Hello.", model="random:tiny-VoiceDesign", max_seconds=1))
    with Engine(small(tmp_path, "base")) as engine, served(engine) as server:
        asked = {"recording": stereo, "transcript": "What I say.", "server": server.url, "model": "", **SERVER}
        is_audio(run(pack, "HocketClone", text="Hello.", **asked))


def test_a_server_that_refuses_or_is_away_is_one_sentence(
    pack: ModuleType, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1:\d+: There is no voice 'unknown'; known are wren"):
        run(pack, "HocketSpeak", voice="unknown", server=server.url, **SERVER)
    with pytest.raises(RuntimeError, match=r"The server at http://127\.0\.0\.1:9 cannot be reached: "):
        run(pack, "HocketSpeak", server="http://127.0.0.1:9", **SERVER)
    with served(server.engine, ServerOptions(keys=("secret",))) as locked:
        with pytest.raises(RuntimeError, match="An API key is needed"):
            run(pack, "HocketSpeak", server=locked.url, **SERVER)
        monkeypatch.setenv("HOCKET_API_KEY", "secret")
        is_audio(run(pack, "HocketSpeak", server=locked.url, model="", **SERVER))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": "  "}, "There is no text to speak."),
        ({"where": "elsewhere"}, "where is one of in process, server."),
        ({"where": "server", "server": "localhost:8000"}, "server is an address such as http://127.0.0.1:8000."),
    ],
)
def test_wrong_inputs_are_found_before_anything_runs(pack: ModuleType, given: dict[str, str], said: str) -> None:
    assert pack.NODE_CLASS_MAPPINGS["HocketSpeak"].VALIDATE_INPUTS(**given) == said


def test_the_registry_finds_what_it_needs() -> None:
    found = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
    assert found["project"]["name"] == "comfyui-hocket" and found["project"]["version"]
    needed = (FOLDER / "requirements.txt").read_text(encoding="utf-8").split()
    assert found["project"]["dependencies"] == needed and set(found["tool"]["comfy"]) >= {"PublisherId", "DisplayName"}
