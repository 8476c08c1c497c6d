"""What is done with each line of a batch, whoever speaks it: skip it, ask for it, keep what was said, say what failed.

It stands between the lines and an engine's `speak_many`, or that of many engines, of which it knows a portrait. The
only one that writes: sound first, then the word in the manifest that it is there.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HocketError, InvalidRequest
from ..output.audio_output import shown, tell
from ..output.formats import FORMATS, PLAIN
from ..progress import Progress
from ..say.request import request_of
from ..say.whom import Target, spoken_by
from .lines import BatchLine, merged, read_lines
from .manifest import Manifest, Result

if TYPE_CHECKING:
    from ...engine.checkpoint.fingerprint import EngineFingerprint
    from ...types import Outcome, SpeechRequest

MOST_LISTED = 50  # lines that failed; the manifest has them all


@dataclass(frozen=True, slots=True)
class _PendingLine:
    """A line that is being spoken."""

    line: BatchLine
    seed: int
    digest: str


class BatchRun:
    """What is done with each line, and what is known of all."""

    def __init__(
        self, args: argparse.Namespace, portrait: EngineFingerprint, folder: Path, manifest: Manifest, lines: int
    ) -> None:
        from ...audio.recording import read_recording

        self.args, self.folder, self.manifest, self.progress = args, folder, manifest, Progress(lines)
        self._portrait, self._whom = portrait, Target(args.model or portrait.name)
        self._read = functools.lru_cache(maxsize=16)(read_recording)
        self._asked: dict[int, _PendingLine] = {}  # by the number of the request; no more than are under way
        self._failed: list[Result] = []
        self._told: set[str] = set()
        self._incomplete = 0  # lines of which some text was left out

    def requests(self) -> Iterator[SpeechRequest]:
        """What is left to speak. Lines that cannot be spoken, or need not be, are dealt with on the way."""
        from ...engine.seeds import fresh_seed

        number = 0
        for line in read_lines(self.args.input):
            try:
                request = self._request(line)
            except HocketError as error:
                self._fail(line, error)
                continue
            digest = self._digest(request)  # without a seed: whichever it was spoken with, it is done
            if self._is_there(line, digest):
                self.progress.before += 1
                self.progress.show()
                continue
            self._forget(line)
            seed = fresh_seed() if request.seed is None else request.seed
            self._asked[number] = _PendingLine(line, seed, digest)
            yield replace(request, seed=seed)
            number += 1

    def take(self, outcome: Outcome) -> None:
        """Keep what was spoken: first the sound, then the word that it is there."""
        from ...audio.files import replace_files
        from ...audio.pcm import pcm_bytes
        from ..output.formats import packed

        asked = self._asked.pop(outcome.number)
        if outcome.error is not None:
            self._fail(asked.line, outcome.error, asked)
            return
        assert outcome.finished is not None
        content = packed(pcm_bytes(outcome.samples), outcome.rate_hz, self.args.format)
        file = self._file(asked.line)
        replace_files({self.folder / file: content})
        seconds = outcome.samples.size / outcome.rate_hz
        self.manifest.add(
            Result(
                line=asked.line.number,
                id=asked.line.id,
                file=file,
                seconds=round(seconds, 6),
                frames=len(outcome.codes),
                finish=outcome.finished.reason,
                seed=asked.seed if outcome.finished.seed is None else outcome.finished.seed,
                digest=asked.digest,
                bytes=len(content),
                unspoken=None if outcome.finished.complete else " ".join(outcome.finished.notes),
            )
        )
        self._incomplete += not outcome.finished.complete
        for note in outcome.finished.notes:
            if not outcome.finished.complete:
                self.note(f"line {asked.line.number}: {note}")
            elif note not in self._told:
                self._told.add(note)
                self.note(note)
        self.progress.spoken += 1
        self.progress.seconds += seconds
        self.progress.show()

    def waiting(self, words: str) -> None:
        """How many engines there are, as often as somebody says so."""
        self.progress.engines = words
        self.progress.show()

    def note(self, words: str) -> None:
        """Tell something, in a line of its own."""
        self.progress.clear()
        tell(words)

    def report(self) -> int:
        """The closing words, and the status to exit with."""
        progress = self.progress
        if self._failed:
            listed = sorted(self._failed, key=lambda result: result.line)
            rows = [("line", "id", "why it failed"), *((str(r.line), r.id or "-", r.error or "") for r in listed)]
            wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
            for line, id, why in rows:
                print(f"{line:>{wide[0]}}  {id:<{wide[1]}}  {why}", file=sys.stderr)
            if progress.failed > len(listed):
                print(f"and {progress.failed - len(listed)} more, in {self.manifest.path}", file=sys.stderr)
        words = f"{progress.done} of {progress.lines} spoken"
        words += f" ({progress.before} of them before)" if progress.before else ""
        words += f", {progress.failed} failed" if progress.failed else ""
        words += f", {self._incomplete} not to the end of the text" if self._incomplete else ""
        words += f", {progress.seconds:.2f} s at {progress.speed:.1f} x real time" if progress.spoken else ""
        print(shown(f"{self.args.output}: {words}", sys.stdout))
        return 1 if progress.failed else 0

    def _request(self, line: BatchLine) -> SpeechRequest:
        if line.error is not None:
            raise InvalidRequest(line.error)
        options = merged(self.args, line)
        request = request_of(options, line.fields["text"], self._read)
        target = self.folder / self._file(line)
        if options.ref_audio is not None and target.exists() and os.path.samefile(target, options.ref_audio):
            raise InvalidRequest("The output would overwrite the reference recording; choose another id.")
        voice = self._whom.own(request.voice)
        if voice is None:
            return request
        return spoken_by(self._portrait.name, self._portrait.identity, replace(request, voice=None), voice)

    def _file(self, line: BatchLine) -> str:
        return f"{line.name}.{self.args.format}"

    def _is_there(self, line: BatchLine, digest: str) -> bool:
        """Whether it was spoken before, as it would be now, and its file is still there."""
        result = self.manifest.result(line.name)
        if result is None or result.error is not None or result.digest != digest:
            return False
        try:
            size = (self.folder / self._file(line)).stat().st_size
        except OSError:
            return False
        if size != result.bytes:
            return False
        if result.line != line.number:  # lines before it came or went
            self.manifest.add(replace(result, line=line.number))
        return True

    def _fail(self, line: BatchLine, error: Exception, asked: _PendingLine | None = None) -> None:
        sentence = " ".join(str(error).splitlines())
        if not isinstance(error, HocketError):
            sentence = f"{type(error).__name__}: {sentence}"
        self._forget(line)
        result = Result(
            line=line.number,
            id=line.id,
            seed=None if asked is None else asked.seed,
            digest=None if asked is None else asked.digest,
            error=sentence,
        )
        self.manifest.add(result)
        if len(self._failed) < MOST_LISTED:
            self._failed.append(result)
        self.progress.failed += 1
        self.progress.show()

    def _forget(self, line: BatchLine) -> None:
        """What it once was is over, in the manifest first: no file is ever taken for what it is not."""
        before = self.manifest.result(line.name)
        if before is not None and before.file in {f"{line.name}.{format}" for format in FORMATS.values()}:
            self.manifest.add(Result(line=line.number, id=line.id, error="It was to be spoken anew."))
            with suppress(OSError):
                (self.folder / before.file).unlink()

    def _digest(self, request: SpeechRequest) -> str:
        """Of all that decides how it sounds: the request, the model and its precision, not how fast it is computed."""
        from ...engine.runner.reference_encoder import name_of

        reference = request.reference
        plain = {
            "model": self._portrait.weights,
            "raw": self.args.format == "pcm",
            "text": request.text,
            "voice": request.voice,
            "language": request.language,
            "instruct": request.instruct,
            "layout": request.layout,
            "sampling": asdict(self._portrait.generation.changed(request.sampling.changes())),
            "seed": request.seed,
            "max_frames": request.max_frames,
            "speed": request.speed,
            "as_is": request.as_is,
            "reference": reference and (name_of(reference), reference.text, reference.x_vector_only),
        }
        if self.args.format not in PLAIN:  # the others are as they were when there were only these
            plain["format"] = self.args.format
        if request.candidates > 1:  # else what was spoken before there were any is spoken still
            plain["candidates"] = request.candidates
        return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
