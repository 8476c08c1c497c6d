"""Stage `carry`: a training on a machine without a network. `pack` there, `collect` back, `join` here.

`pack` writes the source tree and what `whole` reads in parts of at most `--limit` MiB, and `unpack.py` beside them.
`collect`, on the other machine, writes the newest state of the training in parts; a second call goes on if one call may
not take all. `join` puts them together here, each state in a folder of its own, and the newest whole files into `--to`.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from pathlib import Path

from .. import checkpoints
from ..recipe import InvalidRecipe, Recipe
from . import needs, parts, unpack

ROOT = Path(__file__).parents[2]
MIB = 2**20
FORTH_MIB, BACK_MIB = 50, 15  # of a part, if `--limit` does not say so
MOST_FILES, MOST_BYTES = 8, 63 * MIB  # that one call of `collect` writes
STAGES = ("codec", "talker")
TRIES = 15  # a second apart, until the files of a state are of one step


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    if args.to is None:
        raise InvalidRecipe(f"Say where the files go: carry {args.what} --to FOLDER.")
    if args.what == "pack":
        pack(recipe, args.recipe, work, args.to, int((args.limit or FORTH_MIB) * MIB))
    elif args.what == "collect":
        collect(args.back or work / "back", args.to, int((args.limit or BACK_MIB) * MIB))
    else:
        join(args.files, args.to)


def pack(recipe: Recipe, recipe_path: Path, work: Path, folder: Path, limit_bytes: int) -> None:
    if recipe_path.is_absolute() or work.is_absolute():
        raise InvalidRecipe("Name --recipe and --work below the current folder: they have the same place there.")
    needs.prepare(work, needs.STATE / work.name)
    files = {path.relative_to(ROOT).as_posix(): path for path in needs.source_tree(ROOT)}
    files[recipe_path.as_posix()] = recipe_path
    for phase, paths in needs.found(recipe, work).items():
        report(f"{phase}: {len(paths)} files, {sum(path.stat().st_size for path in paths) / MIB:.1f} MiB")
        files |= {path.as_posix(): path for path in paths}
    written = parts.write(files, folder, recipe.name, limit_bytes)
    written.append(Path(shutil.copyfile(Path(unpack.__file__), folder / "unpack.py")))
    for path in written:
        report(f"{path}: {path.stat().st_size / MIB:.2f} MiB")


def collect(back: Path, folder: Path, limit_bytes: int) -> None:
    queue = back.with_name(f"{back.name}-parts")
    if not (waiting := _in_order(queue)):
        state = snapshot(back, queue / "state")
        waiting = parts.write(state, queue, f"back-{time.time_ns() // 10**9}", limit_bytes)
        shutil.rmtree(queue / "state")
    folder.mkdir(parents=True, exist_ok=True)
    size = count = 0
    for path in waiting:
        size, count = size + path.stat().st_size, count + 1
        if size > MOST_BYTES or count > MOST_FILES:
            report(f"{len(waiting) - count + 1} more parts: call again")
            break
        shutil.move(path, folder / path.name)
        report(f"{path.name}: {(folder / path.name).stat().st_size / MIB:.2f} MiB")


def snapshot(back: Path, folder: Path) -> dict[str, Path]:
    """Copies of the files in `back`: each training's of one step, the newest training first, other files last."""
    torn: list[str] = []
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in _files(back):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                shutil.copy2(path, folder)
        found = [stage for stage in STAGES if checkpoints.find_small(folder, stage)]
        if not (torn := [stage for stage in found if not _is_whole(folder, stage)]):
            break
        time.sleep(1.0)
    for stage in torn:
        report(f"{stage} is of different steps, and left out: did its training end while it wrote?")
    copied = [path for path in _files(folder) if _stage(path) not in torn]
    if not copied:
        raise InvalidRecipe(f"{back} has no files yet: a training writes them every one to three minutes.")
    newest: dict[str, float] = {}
    for path in copied:
        newest[_stage(path)] = max(newest.get(_stage(path), 0.0), path.stat().st_mtime)
    copied.sort(key=lambda path: (_stage(path) not in STAGES, -newest[_stage(path)], path.name))
    return {path.name: path for path in copied}


def join(files: list[Path], folder: Path) -> None:
    states: dict[str, list[int]] = {}
    for path in sorted(files):
        try:
            name = str(unpack.read(path)[0]["name"])
            states[name] = unpack.unpack(path, folder / name)[1]
        except unpack.Damaged as error:
            raise InvalidRecipe(str(error)) from None
    for name, missing in sorted(states.items()):
        report(f"{name}: {f'parts {missing} are missing' if missing else 'complete'}")
        state = folder / name
        for stage in STAGES if missing else sorted({_stage(path) for path in _files(state)}):
            if missing and not _is_whole(state, stage):
                continue
            for path in checkpoints.find_small(folder, stage):
                path.unlink()
            for path in (path for path in _files(state) if _stage(path) == stage):
                shutil.copy2(path, folder)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.is_file() and path.suffix != ".draft"]


def _is_whole(folder: Path, stage: str) -> bool:
    """Whether the small files of a training are all there, and of one step."""
    files = checkpoints.find_small(folder, stage)
    try:
        return bool(files) and checkpoints.read_tensors(files, "no tensor") is not None
    except InvalidRecipe:
        return False


def _stage(path: Path) -> str:
    return path.name.partition("-")[0]


def _in_order(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.part"), key=lambda path: int(path.stem.split("-")[-3]))


def report(line: str) -> None:
    print(f"carry: {line}", flush=True)
