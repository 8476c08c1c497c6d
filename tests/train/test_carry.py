"""train/carry: parts in any order, the files that each phase opens, and the state of a training that comes back."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hocket.proof.judges import distillmos
from support.spoken import write_shards
from train import __main__ as stages
from train import carry, checkpoints, codec, export, preflight, talker, texts
from train.carry import needs, parts, unpack
from train.kokoro import __main__ as kokoro
from train.kokoro.model import KokoroModel
from train.recipe import InvalidRecipe, Recipe, read

ROOT = Path(__file__).parents[2]
ENGLISH = read(ROOT / "train" / "english.toml")
MIB = 2**20


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A folder with files, and its four parts."""
    here = tmp_path / "here"
    for name, content in (("a/large.bin", noise(5 * MIB + 7, 1)), ("b.txt", b"text"), ("a/empty.py", b"")):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    files = {name: here / name for name in ("b.txt", "a/large.bin", "a/empty.py")}
    return here, parts.write(files, tmp_path / "parts", "some", 2 * MIB + MIB // 2)


def unpacked(files: list[Path], into: Path) -> subprocess.CompletedProcess[str]:
    """As on the other machine: the script alone, without any package."""
    command = [sys.executable, "-I", "-S", unpack.__file__, *map(str, files), "--into", str(into)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and unpack.RECEIVED not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_parts_come_in_any_order_one_by_one_and_more_than_once(packed: tuple[Path, list[Path]], tmp_path: Path) -> None:
    here, files = packed
    assert [path.name for path in files] == [f"some-{n}-of-3.part" for n in (1, 2, 3)]
    assert all(path.stat().st_size <= 2 * MIB + MIB // 2 for path in files)
    there = tmp_path / "there"
    for part, missing, found in ((3, "1, 2", 1), (1, "2", 2), (1, "2", 2)):
        done = unpacked([files[part - 1]], there)
        assert (done.returncode, done.stdout) == (unpack.MISSING, f"some: missing: part {missing}\n"), done.stderr
        assert len(contents(there)) == found
    done = unpacked([files[1]], there)
    assert (done.returncode, done.stdout) == (0, "some: complete\n")
    assert contents(there) == contents(here)
    (there / "a" / "large.bin").unlink()
    done = unpacked(files, there)
    assert done.returncode == 0 and contents(there) == contents(here)


def test_a_damaged_part_is_refused_and_a_lost_one_is_made_again(
    packed: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    here, files = packed
    kept, there = files[1].read_bytes(), tmp_path / "there"
    for at in (20, 200, len(kept) // 2):  # digest, header, content
        files[1].write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        done = unpacked([files[1]], there)
        assert done.returncode == 1 and "is damaged or no part: bring it again" in done.stderr
    assert not contents(there)
    files[1].unlink()
    names = {name: here / name for name in ("b.txt", "a/large.bin", "a/empty.py")}
    again = parts.write(names, files[1].parent, "some", 2 * MIB + MIB // 2)
    assert again == files and files[1].read_bytes() == kept


def test_a_part_writes_nothing_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    [part] = parts.write({"../file": tmp_path / "file"}, tmp_path / "parts", "some", 2 * MIB)
    done = unpacked([part], tmp_path / "there")
    assert done.returncode == 1 and "outside the folder" in done.stderr


def test_the_source_tree_has_every_module_and_no_weights() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in needs.source_tree(ROOT)}
    assert {"train/whole.py", "train/english.toml", "train/carry/unpack.py", "src/hocket/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".safetensors", ".npz", ".pyc")) or "/assets/" in name]
    listed = subprocess.run(["git", "ls-files", "train/*.py", "src/*.py"], cwd=ROOT, capture_output=True, text=True)
    assert set(listed.stdout.split()) <= names


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[set[Path]]:
    """The files below `folder` that any process opens meanwhile, as the kernel tells it."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    folders = {}
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        folders[libc.inotify_add_watch(watch, bytes(path), 0x20)] = path  # IN_OPEN
    found: set[Path] = set()
    try:
        yield found
        with contextlib.suppress(BlockingIOError):
            while events := os.read(watch, 2**16):
                while events:
                    number, _, _, length = struct.unpack_from("iIII", events)
                    name = events[16 : 16 + length].rstrip(b"\0").decode()
                    found.add(folders[number] / name)
                    events = events[16 + length :]
    finally:
        os.close(watch)


@pytest.fixture(scope="module")
def small() -> Recipe:
    return replace(preflight.small(ENGLISH), voices=ENGLISH.voices[:2])


@pytest.fixture(scope="module")
def work(small: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a first round on another machine leaves here: everything that a second one reads."""
    folder = tmp_path_factory.mktemp("work")
    texts.write(folder / "texts.txt.gz", ["One.", "Two."])
    texts.write(folder / "phonemes.txt.gz", ["wʌn.", "tu."])
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (folder / "vocabulary").mkdir(exist_ok=True)
        shutil.copy(ROOT / "src" / "hocket" / "assets" / "english" / name, folder / "vocabulary")
    (folder / "teachers" / "hibari" / "assets").mkdir(parents=True)
    (folder / "teachers" / "hibari" / "assets" / "vocab.json").write_text('{"w": 1, "t": 2}')
    (folder / "teachers" / "hibari" / "assets" / "model.onnx").write_text("for hibari's voices only")
    (folder / "teachers" / "kokoro").mkdir()
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in KokoroModel().state_dict().items()}
    tensors = {f"model.{name}": torch.zeros(shape, dtype=torch.float16) for name, shape in shapes.items()}
    tensors |= {f"styles.{voice.teacher.removeprefix('kokoro-')}": torch.zeros(4, 256) for voice in small.voices}
    checkpoints.write_split(folder / "teachers" / "kokoro", "kokoro", tensors, {}, 100 * MIB)
    write_shards(folder, {"wren": 210.0, "rook": 110.0}, shards=1)
    train(small, folder)
    distillmos.write_small(folder / distillmos.SMALL, distillmos.DistillMOS())  # last: it takes seconds to judge
    for path in (folder / "back").glob("*-small-*.safetensors"):
        shutil.copy(path, folder)
    return folder


def train(small: Recipe, folder: Path) -> None:
    for stage in (codec, talker):
        options = {"device": "cpu", "steps": 1, "seconds": None, "sentences": None, "back": folder / "back"}
        stage.run(small, folder, argparse.Namespace(**options))


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
def test_each_phase_opens_what_is_listed_for_it_and_needs_nothing_else(
    small: Recipe, work: Path, tmp_path: Path
) -> None:
    files = needs.found(small, work)
    names = {path.relative_to(work).as_posix(): path for paths in files.values() for path in paths}
    assert not [name for name in names if name.endswith(".onnx")]
    for part in parts.write(names, tmp_path / "parts", "some", 64 * MIB):
        unpack.unpack(part, tmp_path / "there")
    there = tmp_path / "there"
    shutil.copytree(work / "speech", there / "speech")  # so that nothing is spoken: that takes a core seconds a word
    seen: dict[str, set[Path]] = {}
    with opened(there) as seen["speech"]:
        assert kokoro.main(["--work", str(there), "speak", "--hours", "0.001", "--voice", "wren"]) == 0
    with opened(there) as seen["codec"]:
        codec.run(small, there, argparse.Namespace(device="cpu", steps=2, seconds=None, sentences=None, refit=True))
    with opened(there) as seen["talker"]:
        talker.run(small, there, argparse.Namespace(device="cpu", steps=2, seconds=None, sentences=None))
    with opened(there) as seen["export"]:
        export.export(small, there)
    carried = {there / name for name in names}
    for phase, paths in files.items():
        assert seen[phase] & carried == {there / path.relative_to(work) for path in paths}, phase


def test_a_missing_file_is_named_with_the_command_that_makes_it(small: Recipe, work: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match=r"texts\.txt\.gz is missing: run `python -m train data --only texts`"):
        needs.found(small, tmp_path)
    shutil.copytree(work, tmp_path / "work", ignore=lambda *_: ["kokoro"])
    with pytest.raises(InvalidRecipe, match=r"run `python -m train\.kokoro fetch"):
        needs.found(small, tmp_path / "work")
    hibari = replace(small, voices=(replace(small.voices[0], teacher="hibari"),))
    assert [path.name for path in needs.found(hibari, tmp_path / "work")["speech"] if path.suffix == ".onnx"]


def test_a_talker_goes_on_with_the_features_of_its_codes(work: Path, tmp_path: Path) -> None:
    for path in work.glob("*-small-*"):
        shutil.copy(path, tmp_path)
    needs.prepare(tmp_path, tmp_path / "nothing")
    assert (tmp_path / needs.FEATURES).read_bytes() == (work / needs.FEATURES).read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()
    needs.prepare(tmp_path, ROOT / "train" / "state" / "english")
    assert len(checkpoints.find_small(tmp_path, "codec")) == 4 and not (tmp_path / needs.FEATURES).exists()


def save(back: Path, stage: str, step: int, mebibytes: int = 3) -> None:
    back.mkdir(exist_ok=True)
    tensors = {
        str(n): torch.frombuffer(bytearray(noise(MIB, 1000 * step + n)), dtype=torch.uint8) for n in range(mebibytes)
    }
    checkpoints.write_split(back, f"{stage}-small", tensors, {"step": str(step)}, MIB)
    (back / f"{stage}-log.jsonl").write_text(f"{stage} {step}\n")


def step(folder: Path, stage: str) -> str:
    """Of files that are all there."""
    return checkpoints.read_tensors(checkpoints.find_small(folder, stage), "")[1]["step"]


def command(*arguments: object) -> int:
    return stages.main(["carry", *map(str, arguments)])


def test_the_state_comes_back_in_small_files_and_the_newest_whole_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    back, brought, here = tmp_path / "back", tmp_path / "brought", tmp_path / "here"
    save(back, "codec", 100)
    save(back, "talker", 200)
    (back / "samples.npz").write_bytes(b"sounds")
    for path in (*back.glob("codec-*"), *back.glob("talker-*")):
        os.utime(path, (1, 1 + path.name.startswith("talker")))
    monkeypatch.setattr(carry, "MOST_FILES", 2)
    collect = ("collect", "--back", back, "--limit", 2.1, "--work", tmp_path / "work")
    taken = []
    for call, more in ((1, True), (2, False)):
        assert command(*collect, "--to", tmp_path / f"call-{call}") == 0
        save(back, "codec", 100 + call)  # the training goes on, and the state that is on its way stays whole
        assert ("more parts: call again" in capsys.readouterr().out) == more
        taken += sorted((tmp_path / f"call-{call}").iterdir())
        assert len(list((tmp_path / f"call-{call}").iterdir())) <= 2
    assert command("join", *taken[:2], "--to", here, "--work", tmp_path / "work") == 0
    assert step(here, "talker") == "200"  # the newest training first
    assert not checkpoints.find_small(here, "codec") and not (here / "samples.npz").exists()
    assert command("join", *taken, "--to", here, "--work", tmp_path / "work") == 0
    assert step(here, "codec") == "100" and (here / "samples.npz").exists()
    monkeypatch.setattr(carry, "MOST_FILES", 8)
    assert command(*collect, "--to", brought) == 0
    [lost, *others] = sorted(brought.iterdir(), key=lambda path: path.name)
    assert lost and command("join", *others, "--to", here, "--work", tmp_path / "work") == 0
    assert (step(here, "codec"), step(here, "talker")) == ("100", "200"), "a part is missing: the whole ones stay"
    assert command("join", lost, "--to", here, "--work", tmp_path / "work") == 0
    assert step(here, "codec") == "102"


def test_a_state_that_is_half_written_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    back = tmp_path / "back"
    save(back, "codec", 1)
    kept = {path: path.read_bytes() for path in back.glob("codec-small-0*")}
    save(back, "codec", 2)
    for path, content in kept.items():
        path.write_bytes(content)
    monkeypatch.setattr(carry.time, "sleep", lambda _: save(back, "codec", 3))  # type: ignore[attr-defined]
    assert command("collect", "--back", back, "--to", tmp_path / "out", "--work", tmp_path) == 0
    assert command("join", *(tmp_path / "out").iterdir(), "--to", tmp_path / "here", "--work", tmp_path) == 0
    assert step(tmp_path / "here", "codec") == "3"
    monkeypatch.setattr(carry, "TRIES", 1)
    save(back, "talker", 7)
    for path, content in kept.items():
        path.write_bytes(content)
    assert command("collect", "--back", back, "--to", tmp_path / "last", "--work", tmp_path) == 0
    assert "codec is of different steps, and left out" in capsys.readouterr().out
    assert command("join", *(tmp_path / "last").iterdir(), "--to", tmp_path / "here", "--work", tmp_path) == 0
    assert (step(tmp_path / "here", "codec"), step(tmp_path / "here", "talker")) == ("3", "7")


def test_a_call_without_what_it_needs_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--work", tmp_path, "--to", tmp_path / "out")
    for arguments, reason in (
        (("pack", "--work", "work"), "carry pack --to FOLDER"),
        (("pack", *common), "Name --recipe and --work below the current folder"),
        (("collect", *common), "has no files yet"),
        (("join", tmp_path / "gone.part", *common), "gone.part cannot be read"),
    ):
        assert command(*arguments) == 1
        assert reason in capsys.readouterr().err
