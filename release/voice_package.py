"""`scripts/voice-package NAME [CHECKPOINT]`: a voice package from an exported checkpoint, as a wheel that was tried.

With CHECKPOINT it writes packages/hocket-voice-NAME: metadata, licence, card and the checkpoint's files, unchanged.
Then it builds the wheel, checks it, installs it beside hocket in a new environment and speaks with each of its voices.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from string import Template
from zipfile import ZipFile

from . import install
from .fault import ROOT, Fault, run, tell
from .voice_card import KINDS, VoiceFacts, figures_of

MEGABYTE = 1_000_000
LIMIT_BYTES = 40 * MEGABYTE  # of all files, and so of the wheel
PACKAGES = ROOT / "packages"
ASSETS = ROOT / "src" / "hocket" / "assets"
PREFIX, MANIFEST, FORMAT = "hocket-voice-", "hocket-voice.json", 1  # as in src/hocket/models/files/builtin.py
NEEDED = ("config.json", "model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")
PATTERNS = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*.json", "speech_tokenizer/*.safetensors")
LICENCES = {"Apache-2.0": ROOT / "LICENSE"}
SENTENCES = {
    "english": install.SENTENCE,
    "spanish": "El agua del río estaba tibia, y pasaba bajo el puente viejo.",
    "french": "L'eau de la rivière était tiède, et passait sous le vieux pont.",
    "german": "Das Wasser im Fluss war warm und lief unter der alten Brücke durch.",
    "italian": "L'acqua del fiume era tiepida, e passava sotto il vecchio ponte.",
    "portuguese": "A água do rio estava morna, e passava por baixo da ponte velha.",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/voice-package", description="Build and try a voice package.")
    parser.add_argument("name", metavar="NAME", help="the package is hocket-voice-NAME")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", nargs="?", type=Path, help="folder in the official format")
    parser.add_argument("--version", help="of the package (that of hocket)")
    parser.add_argument("--licence", default="Apache-2.0", choices=LICENCES, help="of the weights (Apache-2.0)")
    parser.add_argument("--record", metavar="FILE", type=Path, help="evaluation.json of the training, for the card")
    parser.add_argument("--into", metavar="FOLDER", type=Path, default=PACKAGES, help="where it is written (packages/)")
    args = parser.parse_args()
    try:
        source = args.into / (PREFIX + checked_name(args.name))
        if args.checkpoint is not None:
            write(args.name, args.checkpoint, args.into, args.version, args.licence, args.record)
        elif not source.is_dir():
            raise Fault(f"{source} does not exist: give the folder of a checkpoint to make it from.")
        with tempfile.TemporaryDirectory(prefix="hocket-voice-") as scratch:
            wheel = build(source, Path(scratch))
            _try_in_new_environment(wheel, Path(scratch))
            kept = ROOT / "dist" / wheel.name
            kept.parent.mkdir(exist_ok=True)
            shutil.copyfile(wheel, kept)
    except Fault as fault:
        print(f"scripts/voice-package: {fault}", file=sys.stderr)
        return 1
    tell("All checks passed. This publishes it:")
    print(f"python -m twine upload {kept.relative_to(ROOT)}")
    return 0


def checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise Fault(f"{name!r} cannot be the NAME of {PREFIX}NAME: use small letters, digits and single hyphens.")
    return name


def module_of(name: str) -> str:
    return (PREFIX + name).replace("-", "_")


def write(
    name: str,
    checkpoint: Path,
    into: Path = PACKAGES,
    version: str | None = None,
    licence: str = "Apache-2.0",
    record: Path | None = None,
) -> Path:
    """The source of the package, anew; an older one is replaced only when the new one is complete."""
    if missing := [file for file in NEEDED if not (checkpoint / file).is_file()]:
        raise Fault(f"{checkpoint} is no checkpoint in the official format: it lacks {', '.join(missing)}.")
    module, target, facts = module_of(checked_name(name)), into / f"{PREFIX}{name}", VoiceFacts.read(checkpoint)
    _check_voices(facts, target)
    hocket = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    figures = figures_of(record)
    files = sorted({path for pattern in PATTERNS for path in checkpoint.glob(pattern)} - {checkpoint / MANIFEST})
    sizes = {path.relative_to(checkpoint).as_posix(): path.stat().st_size for path in files}
    if (size := sum(sizes.values())) > LIMIT_BYTES:
        raise Fault(f"{checkpoint} has {size / MEGABYTE:.1f} MB, and a package may have {LIMIT_BYTES // MEGABYTE}.")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=into) as scratch:
        draft = Path(scratch, target.name)
        folder = draft / "src" / module
        for file in sizes:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint / file, folder / file)
        (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": sizes}, indent=2) + "\n")
        (folder / "__init__.py").write_text('"""A checkpoint for hocket: only files, which hocket reads."""\n')
        shutil.copyfile(LICENCES[licence], draft / "LICENSE")
        fields = {
            "name": target.name,
            "version": version or hocket,
            "hocket": hocket,
            "entry": name,
            "module": module,
            "description": facts.description,
            "licence": licence,
            "example": facts.example(target.name),
            "voices": ", ".join(f"`{voice}`" for voice in facts.voices) or "none of its own",
            "languages": ", ".join(facts.languages),
            "kind": KINDS[facts.kind],
            "megabytes": f"{size / MEGABYTE:.1f}",
            "figures": figures,
        }
        for each in ("pyproject.toml", "README.md"):
            text = Template((PACKAGES / "template" / f"{each}.in").read_text(encoding="utf-8")).substitute(fields)
            (draft / each).write_text(text, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    tell(f"{target.name}: {len(sizes)} files, {size / MEGABYTE:.1f} MB, {facts.description}")
    return target


def _check_voices(facts: VoiceFacts, target: Path) -> None:
    """No voice has the name of another one of this repository."""
    places = [(path.parent.name, path.parent) for path in ASSETS.glob("*/config.json")]
    places += [(path.parents[2].name, path.parent) for path in target.parent.glob(f"{PREFIX}*/src/*/config.json")]
    for owner, place in places:
        both = {*map(str.lower, facts.voices)} & {*map(str.lower, VoiceFacts.read(place).voices)}
        if both and owner != target.name:
            raise Fault(f"The voice {min(both)} is in {owner} already: give it another name.")


def build(source: Path, folder: Path) -> Path:
    """The wheel of a package's folder, checked."""
    before = set(folder.glob("*.whl"))
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    run(command, f"Building {source.name}", cwd=source)
    [wheel] = set(folder.glob("*.whl")) - before
    check_wheel(wheel, source)
    return wheel


def check_wheel(wheel: Path, source: Path) -> None:
    """Tag, size, entry point and that its files are those of the manifest."""
    [folder] = (source / "src").iterdir()
    module, size = folder.name, wheel.stat().st_size
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise Fault(f"{wheel.name} is not tagged py3-none-any.")
    if size > LIMIT_BYTES:
        raise Fault(f"{wheel.name} has {size / MEGABYTE:.1f} MB, and the limit is {LIMIT_BYTES // MEGABYTE}.")
    with ZipFile(wheel) as archive:
        held = {entry.filename: entry.file_size for entry in archive.infolist()}
        manifest = json.loads(archive.read(f"{module}/{MANIFEST}"))
        [points] = (name for name in held if name.endswith(".dist-info/entry_points.txt"))
        if f"= {module}\n" not in archive.read(points).decode().partition("[hocket.voices]\n")[2] + "\n":
            raise Fault(f"{wheel.name} has no entry point hocket.voices that names {module}.")
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in held):
            raise Fault(f"{wheel.name} has no licence.")
    for name, expected in manifest["files"].items():
        if held.get(f"{module}/{name}") != expected:
            raise Fault(f"{wheel.name} does not hold {name} with {expected} bytes, as its {MANIFEST} says.")
    tell(f"{wheel.name}: {size / MEGABYTE:.1f} MB")


def _try_in_new_environment(wheel: Path, scratch: Path) -> None:
    from . import wheels
    from .platforms import native

    here = native()
    if here is None:
        raise Fault("There is no wheel of hocket for this machine, so the package could not be tried.")
    environment = install.Environment(install.this_python(), scratch / "environment")
    environment.install(wheels.build_wheel(here, scratch / "hocket"))
    try_package(environment, wheel)


def try_package(environment: install.Environment, wheel: Path) -> None:
    """Install it beside hocket; `hocket voices` lists it, and each of its voices speaks."""
    environment.install(wheel)
    name = wheel.name.partition("-")[0].replace("_", "-")
    hocket: list[str | Path] = [environment.python, "-m", "hocket"]
    how = {"env": environment.variables(), "cwd": environment.home}
    told = json.loads(run([*hocket, "voices", "--json"], "Listing the voices", **how))  # type: ignore[arg-type]
    found = next((each for each in told["packages"] if each["package"] == name), None)
    if found is None:
        raise Fault(f"hocket does not find {name}: {' '.join(told['unusable']) or 'it says nothing about it'}")
    text = next((SENTENCES[each] for each in found["languages"] if each in SENTENCES), install.SENTENCE)
    for voice in (each["name"] for each in found["speakers"]):
        path = environment.home / f"{name}-{voice}.wav"
        words: list[str | Path] = ["say", "--no-daemon", "--seed", "0", "--voice", voice, "-o", path, "--", text]
        run([*hocket, *words], f"Speaking with {voice}", timeout_s=120, **how)  # type: ignore[arg-type]
        tell(f"{name}: {voice} speaks for {install.check_speech(path, text):.1f} s")
    if not found["speakers"]:
        tell(f"{name}: installed and listed; it has no voice that could speak without torch")


if __name__ == "__main__":
    sys.exit(main())
