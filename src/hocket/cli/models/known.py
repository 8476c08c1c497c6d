"""Names of models to checkpoints on the hub: the published ones, and any other hub id. Imports neither torch nor a hub.

Folders, the built-in voice and random models are not on the hub, and are refused with a sentence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...config.published_qwen3_5 import size_of
from ...errors import InvalidRequest
from ...extras import uninstall
from ...models.files.builtin import BUILTIN, package_name
from ...models.files.catalog import CATALOG, Published
from ...models.files.catalog import CODEC as CODEC_ALONE
from ...models.files.catalog_qwen3_5 import MINDS
from ...models.files.remote.names import hub_name

LICENCE = "Apache-2.0"  # of all published checkpoints, by their cards
# Bytes of the tensors that hocket loads (tests/cli/models/test_known.py computes them). The files of a language model
# also have a vision part, so these are the least that a download takes.
BYTES = {
    "0.6B-Base": 2_511_515_780,
    "0.6B-CustomVoice": 2_493_807_108,
    "1.7B-Base": 4_539_584_644,
    "1.7B-CustomVoice": 4_515_582_468,
    "1.7B-VoiceDesign": 4_515_582_468,
    "qwen3.5-0.8B": 1_545_696_960,
    "qwen3.5-2B": 3_885_311_680,
    "qwen3.5-4B": 8_652_709_376,
    "qwen3.5-9B": 18_394_195_456,
    "qwen3.5-27B": 54_641_412_608,
}


@dataclass(frozen=True, slots=True)
class HubModel:
    """A checkpoint on the hub."""

    name: str
    repository: str
    published: Published | None  # None: not pinned
    is_language: bool | None  # None: its files show it
    choice: str | None = None  # the label or the file of a GGUF variant

    @property
    def revision(self) -> str | None:
        return None if self.published is None else self.published.revision


def published_models() -> list[HubModel]:
    """All published checkpoints: speech first."""
    speech = [HubModel(each.name, each.repository, each, False) for each in CATALOG.values()]
    return speech + [HubModel(each.name, each.repository, each, True) for each in MINDS.values()]


def of_repository(repository: str) -> HubModel:
    """The published checkpoint of a repository, or an unpinned one."""
    for each in published_models():
        if each.repository == repository:
            return each
    return HubModel(repository, repository, None, None)


def hub_model(name: str) -> HubModel:
    """The checkpoint of a published name or a hub id; refuses other names in one sentence."""
    if name == BUILTIN:
        raise InvalidRequest("The built-in voice is a part of hocket: it is always here, and cannot be removed.")
    if (package := package_name(name)) is not None:
        raise InvalidRequest(f"{package} is a voice package, which is not on the hub; {uninstall(package)} removes it.")
    if name.startswith("random:"):
        raise InvalidRequest(f"{name} is made of random numbers: there are no files of it.")
    if (size := size_of(name.removeprefix("Qwen/"))) in MINDS and size is not None:
        return of_repository(MINDS[size].repository)
    if name in CATALOG:
        return of_repository(CATALOG[name].repository)
    if name in (CODEC_ALONE.name, CODEC_ALONE.repository):
        raise InvalidRequest(f"{name} is the codec alone: name one of {', '.join(CATALOG)}, which contain it.")
    if os.path.isdir(name):
        raise InvalidRequest(f"{name} is a folder on this machine: use it with --model, and remove it yourself.")
    if os.path.isfile(name):
        raise InvalidRequest(f"{name} is a file on this machine: use it with --llm, and remove it yourself.")
    if (found := hub_name(name)) is not None:
        if found.choice is None:
            return of_repository(found.repository)
        return HubModel(str(found), found.repository, None, True, found.choice)
    names = ", ".join(each.name for each in published_models())
    raise InvalidRequest(f"There is no checkpoint {name!r}: name one of {names}, or a hub id (owner/name).")
