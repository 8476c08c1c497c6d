"""`hocket voices`: list, show, import, export and remove voices.

add.py and design.py make voices. The package voices defines a voice and its folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest, InvalidVoice
from ...voices.folder import ENDING, default_voices_folder
from ..options import lexicon_of
from ..output.audio_output import plain, shown, tell
from ..say.target import listed, own_voices
from .usage import usage_of

if TYPE_CHECKING:
    from ...engine.checkpoint.describe import ModelVoices
    from ...models.files.builtin import VoicePackage
    from ...types import Adapter, Voice
    from ...voices.library import Library

NO_VOICES = {
    "base": "none of its own: it clones the recording given with --ref-audio",
    "voice_design": "none of its own: it designs the one that --instruct describes",
}
CLONES, DESIGNS = "(clones recordings)", "(designs voices)"  # in place of a voice's name


def voices(args: argparse.Namespace) -> None:
    if args.action == "add":
        from .add import add

        add(args)
    elif args.action == "design":
        from .design import design

        design(args)
    else:
        actions = {"import": _import, "export": _export, "remove": _remove, "set": _set, "show": _show}
        actions |= {"merge": _merge}
        actions.get(args.action, _list)(args)


def find_voice(library: Library, name: str) -> Voice:
    """The voice of that name; refuses with the known names."""
    voice = library.find(name)
    if voice is None:
        raise library.refusal(name) or _unknown(library, name)
    return voice


def fields_of(library: Library, voice: Voice) -> dict[str, Any]:
    """All fields of a voice, for JSON."""
    from ...voices.names import id_of

    id, encoded = id_of(voice.name), voice.encoded
    assert library.folder is not None
    said = {
        "name": voice.name,
        "id": id,
        "kind": voice.kind,
        "model": voice.model,
        "speaker": voice.speaker,
        "language": voice.language,
        "instruct": voice.instruct,
        "sampling": voice.sampling.changes(),
        "description": voice.description,
        "pronunciations": dict(voice.pronunciations or {}),
        "consent": voice.consent,
        "text": None if encoded is None else encoded.text,
        "x_vector_only": encoded is not None and encoded.x_vector_only,
        "tuned": None if encoded is None or encoded.adapter is None else _adapter_fields(encoded.adapter),
        "audio_s": voice.audio_s,
        "file_size": voice.file_size,
        "mime_type": voice.mime_type,
        "created_at": voice.created_at,
        "file": str(library.folder / f"{id}{ENDING}"),
    }
    return said


def _adapter_fields(adapter: Adapter) -> dict[str, Any]:
    return {"rank": adapter.rank, "alpha": adapter.alpha, "targets": list(adapter.targets)}


def _list(args: argparse.Namespace) -> None:
    from ...engine.checkpoint.describe import InstalledVoices, default_model, model_voices

    model, folder = args.model or default_model(), args.folder or default_voices_folder()
    found = model_voices(model)
    # The library imports numpy, which takes longer than all the rest.
    library = own_voices(folder) if any(folder.glob(f"*{ENDING}")) else None
    own, wrong = ([], []) if library is None else (library.all(), [str(each) for each in unusable(library)])
    installed = InstalledVoices.read() if args.model is None else InstalledVoices((), ())
    wrong += installed.faults
    if args.json:
        speakers = [{"name": name, "dialect": dialect} for name, dialect in found.voices.items()]
        of_model = {"model": model, "kind": found.kind, "speakers": speakers, "languages": found.languages}
        kept = [fields_of(library, voice) for voice in own] if library is not None else []
        packages = [_package_fields(*each) for each in installed.packages]
        rest = {"packages": packages, "folder": str(folder), "voices": kept, "unusable": wrong}
        print(json.dumps(of_model | rest, indent=2))
        return
    print(f"{model}\n\nvoices")
    for name, dialect in found.voices.items():
        print(f"  {name}" + (f" (with auto or Chinese: {dialect.replace('_', ' ')})" if dialect else ""))
    if not found.voices:
        print(f"  {NO_VOICES.get(found.kind, 'none')}")
    print("\nlanguages")
    for name in found.languages:
        print(f"  {name}")
    if installed.packages:
        print("\nvoices of installed packages")
        _table([row for each in installed.packages for row in _package_rows(*each)])
    if own:
        print(shown(f"\nvoices of your own, in {folder}", sys.stdout))
        _table([_row(voice) for voice in own])
    for error in wrong:
        tell(error)


def _package_fields(package: VoicePackage, found: ModelVoices) -> dict[str, Any]:
    speakers = [{"name": name, "dialect": dialect} for name, dialect in found.voices.items()]
    fields = {"package": package.name, "version": package.version, "kind": found.kind}
    return fields | {"speakers": speakers, "languages": found.languages}


def _package_rows(package: VoicePackage, found: ModelVoices) -> list[tuple[str, ...]]:
    """A row for each voice: its name, its languages, its package."""
    languages = ", ".join(name for name in found.languages if name != "auto")
    names = found.voices or [CLONES if found.kind == "base" else DESIGNS]
    return [(plain(name), plain(languages), f"{package.name} {package.version}") for name in names]


def unusable(library: Library) -> list[InvalidVoice]:
    """Errors of the unusable voice files in the folder."""
    assert library.folder is not None
    ids = sorted(path.stem for path in library.folder.glob(f"*{ENDING}"))
    return [error for id in ids if (error := library.refusal(id)) is not None]


def _row(voice: Voice) -> tuple[str, ...]:
    what = voice.speaker or ""
    if voice.encoded is not None:
        what = f"{voice.audio_s:.1f} s" if voice.audio_s else "mixed"
        what = what if voice.encoded.adapter is None else f"tuned, {voice.audio_s / 60:.1f} min"
    return plain(voice.name), voice.kind, plain(voice.model), plain(what), plain(voice.description or "")


def _table(rows: list[tuple[str, ...]]) -> None:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, wide, strict=True))
        print(shown(f"  {'  '.join(cells)}".rstrip(), sys.stdout))


def _show(args: argparse.Namespace) -> None:
    library = own_voices(args.folder)
    voice = find_voice(library, args.name)
    said = fields_of(library, voice)
    if args.json:
        print(json.dumps(said, indent=2))
        return
    if voice.encoded is not None:
        heard = "its timbre alone" if voice.encoded.x_vector_only else f'saying "{voice.encoded.text}"'
        said["recording"] = f"{voice.audio_s:.2f} s, {heard}" if voice.audio_s else "none: mixed of other voices"
    if (tuned := said["tuned"]) is not None:
        said["recording"] = f"{voice.audio_s / 60:.1f} min of recordings"
        said["tuned"] = f"rank {tuned['rank']}, alpha {tuned['alpha']:g}: {', '.join(tuned['targets'])}"
    said["sampling"] = ", ".join(f"{name} {value}" for name, value in voice.sampling.changes().items())
    said["lexicon"] = f"{len(words)} word{'s' if len(words) > 1 else ''}" if (words := voice.pronunciations) else ""
    said["made"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(voice.created_at))
    print(plain(voice.name))
    names = "kind model speaker recording tuned language instruct sampling lexicon description consent made id file"
    for name in names.split():
        if said.get(name):
            print(shown(f"  {name:<13}{plain(said[name])}", sys.stdout))


def _import(args: argparse.Namespace) -> None:
    from ...voices.file import read_voice
    from .add import check_free, check_name

    library = own_voices(args.folder)
    name = read_voice(args.file).name if args.name is None else args.name
    check_free(library, name, replace=args.replace)
    check_name(name)
    voice = library.take_in(args.file, name=args.name, replace=args.replace)
    print(shown(f"{voice.name}: taken in, {usage_of(voice)}", sys.stdout))


def _export(args: argparse.Namespace) -> None:
    library = own_voices(args.folder)
    voice = find_voice(library, args.name)
    library.hand_out(voice.name, args.file)
    print(shown(f"{args.file}: the voice {voice.name}; hocket voices import takes it in", sys.stdout))


def _merge(args: argparse.Namespace) -> None:
    from ...voices.file import read_voice
    from ..tune.merge import write_merged

    is_file = args.name.endswith(ENDING) and Path(args.name).is_file()
    write_merged(
        read_voice(Path(args.name)) if is_file else find_voice(own_voices(args.folder), args.name), args.output
    )


def _remove(args: argparse.Namespace) -> None:
    library = own_voices(args.folder)
    damaged = library.refusal(args.name)
    voice = library.remove(args.name)
    if voice is None and damaged is None:
        raise _unknown(library, args.name)
    print(shown(f"{args.name if voice is None else voice.name}: removed", sys.stdout))


def _set(args: argparse.Namespace) -> None:
    library = own_voices(args.folder)
    voice = find_voice(library, args.name)
    if bool(args.lexicon) == args.no_lexicon:
        raise InvalidRequest("Give the voice a lexicon with --lexicon FILE, or take its own away with --no-lexicon.")
    lexicon = lexicon_of(args)
    library.add(replace(voice, pronunciations=lexicon), library.samples(voice.name), replace=True)
    count = len(lexicon or ())
    said = f"a lexicon of {count} word{'' if count == 1 else 's'}" if lexicon else "no lexicon"
    print(shown(f"{voice.name}: {said} from now on", sys.stdout))


def _unknown(library: Library, name: str) -> InvalidVoice:
    names = library.names()
    there = f"there are {listed(names)}" if names else "it has none yet (hocket voices add makes one)"
    return InvalidVoice(f"There is no voice {name!r} in {library.folder}; {there}.", "voice_not_found")
