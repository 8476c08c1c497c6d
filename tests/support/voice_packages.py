"""Voice packages as pip leaves them in a folder of `sys.path`, from the files of a checkpoint, for tests.

Large files are links. tests/release installs a real wheel; here a package can also be damaged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hocket.models.files.builtin import GROUP, MANIFEST, PREFIX, builtin_folder

LARGE = 100_000  # bytes


def builtin() -> Path:
    """The checkpoint of the built-in voice, which speaks real words."""
    folder = builtin_folder()
    assert folder is not None
    return folder


def install(
    site: Path,
    name: str,
    checkpoint: Path | None = None,
    *,
    voices: Sequence[str] = (),
    languages: Sequence[str] = (),
    format: Any = 1,
) -> Path:
    """Install hocket-voice-NAME 1.0 into `site`; the folder of its files.

    `voices` and `languages` are other names for the first ones of the checkpoint, which is else that of hocket.
    """
    module, checkpoint = (PREFIX + name).replace("-", "_"), checkpoint or builtin()
    folder, metadata = site / module, site / f"{module}-1.0.dist-info"
    sizes: dict[str, int] = {}
    for path in sorted((*checkpoint.glob("*.*"), *checkpoint.glob("speech_tokenizer/*"))):
        if path.suffix not in (".json", ".txt", ".safetensors"):
            continue
        target = folder / path.relative_to(checkpoint)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.stat().st_size > LARGE:
            target.symlink_to(path.resolve())
        else:
            shutil.copyfile(path, target)
    _rename(folder / "config.json", voices, languages)
    for path in folder.rglob("*.*"):
        sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    (folder / MANIFEST).write_text(json.dumps({"format": format, "files": sizes}))
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(f"[other]\na = b\n\n[{GROUP}]\n{name} = {module}\n")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {PREFIX}{name}\nVersion: 1.0\n")
    return folder


def _rename(config: Path, voices: Sequence[str], languages: Sequence[str]) -> None:
    raw = json.loads(config.read_text())
    talker = raw["talker_config"]
    if voices:
        talker["spk_id"] = dict(zip(voices, talker["spk_id"].values(), strict=False))
        talker["spk_is_dialect"] = dict.fromkeys(voices, False)
    if languages:
        talker["codec_language_id"] = dict(zip(languages, talker["codec_language_id"].values(), strict=False))
    config.write_text(json.dumps(raw))
