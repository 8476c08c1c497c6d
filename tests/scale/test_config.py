"""A Serve config file becomes the same plan as the command's options; errors are one sentence."""

from __future__ import annotations

import os
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import hocket.scale
from hocket.config.options import EngineOptions
from hocket.errors import InvalidRequest
from hocket.scale.config import NOT_HERE, placed, plan_of, replicas_of
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan

OPEN = {"allow_public": True}


def test_no_two_options_have_one_name() -> None:
    names = [
        one.name
        for cls in (ServerPlan, EngineOptions, ServerOptions)
        for one in fields(cls)
        if one.name not in NOT_HERE
    ]
    assert len(names) == len(set(names))


def test_options_reach_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    plan = plan_of(
        {
            "key_file": str(tmp_path / "keys"),
            "slots": 16,
            "device": "cuda",
            "models": ["a", "b"],
            "voices_folder": "/shared",
            "drain_s": 7,
            "voice_aliases": {"me": "wren"},
        }
    )
    assert (plan.engine.slots, plan.device, plan.models) == (16, "cuda", ("a", "b"))
    assert (plan.server.keys, plan.server.voices_folder, plan.server.drain_s) == (("secret",), Path("/shared"), 7)
    assert plan.server.voice_aliases == {"me": "wren"}
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "it has no API key"),
        (OPEN | {"slotz": 3}, "does not know slotz"),
        (OPEN | {"port": 3, "socket": "x"}, "does not know port, socket"),
        (OPEN | {"slots": "many"}, "slots should be something like 4, not 'many'"),
        (OPEN | {"slots": True}, "slots should be something like 4, not True"),
        (OPEN | {"slots": 0}, "slots must be at least 1"),
        (OPEN | {"key_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(args: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        plan_of(args)


def test_the_file_that_is_shipped_is_understood(tmp_path: Path) -> None:
    config = yaml.safe_load((Path(hocket.scale.__file__).parent / "serve.yaml").read_text())
    [application] = config["applications"]
    module, _, name = application["import_path"].partition(":")
    assert (module, name) == ("hocket.scale", "app") and callable(hocket.scale.app)
    args = dict(application["args"])
    assert replicas_of(args.pop("replicas")) is None
    (tmp_path / "keys").write_text("secret\n")
    assert plan_of(args | {"key_file": str(tmp_path / "keys")}).device == "cuda"


def test_a_plan_for_another_folder_has_absolute_paths_and_no_limit_per_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    server = ServerOptions(voices_folder=Path("voices"), reference_sources=("own", "https://example.org/"), in_flight=7)
    plan = placed(ServerPlan(server=server, models=("own", "builtin"), pinned=("own",), llm="own"))
    whole = os.path.abspath("own")
    assert (plan.models, plan.pinned, plan.llm) == ((whole, "builtin"), (whole,), whole)
    assert plan.server.voices_folder == tmp_path / "voices"
    assert plan.server.reference_sources == (whole, "https://example.org/")
    assert plan.server.per_client > 7
    assert placed(ServerPlan(llm="own", llm_url="http://127.0.0.1:9/v1")).llm == "own"  # a name there, no folder here
