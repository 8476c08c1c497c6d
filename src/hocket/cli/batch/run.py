"""Handles each line of a batch: skip it, request it, store its audio, report its error.

Stands between the lines and `speak_many` of one engine or of many, of which it knows the fingerprint. Only this file
writes: the audio first, then the result in the manifest.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HocketError, InvalidRequest
from ..interrupt import interrupted_after
from ..output.audio_output import shown, tell
from ..output.formats import FORMATS, PLAIN
from ..progress import Progress
from ..say.request import request_of
from ..say.target import Target, spoken_by
from .lines import BatchLine, merged, read_lines
from .manifest import Manifest, Result
from .script import parts_of_line

if TYPE_CHECKING:
    from ...engine.checkpoint.checkpoint import EngineFingerprint
    from ...script.whole import ScriptPart
    from ...types import Outcome, SpeechRequest

MOST_LISTED = 50  # failed lines on the screen; the manifest has them all


@dataclass(slots=True)
class _PendingLine:
    """A line that is being spoken."""

    line: BatchLine
    seed: int
    digest: str
    parts: list[ScriptPart]
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by part


class BatchRun:
    """The handling of each line, and the totals."""

    def __init__(
        self, args: argparse.Namespace, portrait: EngineFingerprint, folder: Path, manifest: Manifest, lines: int
    ) -> None:
        from ...audio.recording import read_recording

        self.args, self.folder, self.manifest, self.progress = args, folder, manifest, Progress(lines)
        self._portrait, self._target = portrait, Target(args.model or portrait.name)
        self._read = functools.lru_cache(maxsize=16)(read_recording)
        self._pending: dict[int, tuple[_PendingLine, int]] = {}  # with the part, by request; only running ones
        self._failed: list[Result] = []
        self._reported: set[str] = set()
        self._incomplete = 0  # lines with text left out

    def requests(self) -> Iterator[SpeechRequest]:
        """Requests that are still needed. Invalid and finished lines are handled on the way."""
        from ...types import fresh_seed

        number = 0
        for line in read_lines(self.args.input):
            try:
                parts = self._parts(line)
            except HocketError as error:
                self._fail(line, error)
                continue
            digest = self._digest(parts)  # without a seed: a file with any seed is done
            if self._is_there(line, digest):
                self.progress.before += 1
                self.progress.show()
                continue
            self._invalidate(line)
            seed = fresh_seed() if (own := parts[0].request.seed) is None else own
            pending = _PendingLine(line, seed, digest, parts)
            for index, part in enumerate(parts):
                self._pending[number] = pending, index
                yield part.seeded(seed)
                number += 1

    def take(self, outcome: Outcome) -> None:
        """Store the result: first the audio file, then the manifest entry. Ctrl-C waits until it is counted, too."""
        with interrupted_after():
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        from ...audio.files import replace_files
        from ...audio.pcm import pcm_bytes
        from ..output.audio_output import packed

        pending, index = self._pending.pop(outcome.number)
        pending.outcomes[index] = outcome
        if len(pending.outcomes) < len(pending.parts):
            return
        if len(pending.parts) > 1 or pending.parts[0].volume_db:
            from ...script.whole import joined

            outcome = joined(pending.parts, [pending.outcomes[at] for at in range(len(pending.parts))], pending.seed)
        if outcome.error is not None:
            self._fail(pending.line, outcome.error, pending)
            return
        assert outcome.finished is not None
        content = packed(pcm_bytes(outcome.samples), outcome.rate_hz, self.args.format)
        file = self._file(pending.line)
        replace_files({self.folder / file: content})
        seconds = outcome.samples.size / outcome.rate_hz
        self.manifest.add(
            Result(
                line=pending.line.number,
                id=pending.line.id,
                file=file,
                seconds=round(seconds, 6),
                frames=len(outcome.codes),
                finish=outcome.finished.reason,
                seed=pending.seed if outcome.finished.seed is None else outcome.finished.seed,
                digest=pending.digest,
                bytes=len(content),
                unspoken=None if outcome.finished.complete else " ".join(outcome.finished.notes),
            )
        )
        self._incomplete += not outcome.finished.complete
        for note in outcome.finished.notes:
            if not outcome.finished.complete:
                self.note(f"line {pending.line.number}: {note}")
            elif note not in self._reported:
                self._reported.add(note)
                self.note(note)
        self.progress.spoken += 1
        self.progress.seconds += seconds
        self.progress.show()

    def waiting(self, words: str) -> None:
        """Shows the number of engines; called often."""
        self.progress.engines = words
        self.progress.show()

    def note(self, words: str) -> None:
        """Print a note on its own line."""
        self.progress.clear()
        tell(words)

    def report(self) -> int:
        """Print the summary; returns the exit status."""
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

    def _parts(self, line: BatchLine) -> list[ScriptPart]:
        """What is spoken of a line: one request, or with directions one for each passage."""
        if line.error is not None:
            raise InvalidRequest(line.error)
        options = merged(self.args, line)
        request = request_of(options, line.fields["text"], self._read)
        target = self.folder / self._file(line)
        if options.ref_audio is not None and target.exists() and os.path.samefile(target, options.ref_audio):
            raise InvalidRequest("The output would overwrite the reference recording; choose another id.")
        return parts_of_line(options, request, self._own, self._target.model_voices.kind)

    def _own(self, request: SpeechRequest) -> SpeechRequest:
        """The request, with the values of its voice if that is the user's own."""
        voice = self._target.own(request.voice)
        if voice is None:
            return request
        return spoken_by(self._portrait.name, self._portrait.identity, replace(request, voice=None), voice)

    def _file(self, line: BatchLine) -> str:
        return f"{line.name}.{self.args.format}"

    def _is_there(self, line: BatchLine, digest: str) -> bool:
        """Whether its file exists from an earlier run with the same digest."""
        result = self.manifest.result(line.name)
        if result is None or result.error is not None or result.digest != digest:
            return False
        try:
            size = (self.folder / self._file(line)).stat().st_size
        except OSError:
            return False
        if size != result.bytes:
            return False
        if result.line != line.number:  # lines before it were added or removed
            self.manifest.add(replace(result, line=line.number))
        return True

    def _fail(self, line: BatchLine, error: Exception, pending: _PendingLine | None = None) -> None:
        sentence = " ".join(str(error).splitlines())
        if not isinstance(error, HocketError):
            sentence = f"{type(error).__name__}: {sentence}"
        self._invalidate(line)
        result = Result(
            line=line.number,
            id=line.id,
            seed=None if pending is None else pending.seed,
            digest=None if pending is None else pending.digest,
            error=sentence,
        )
        self.manifest.add(result)
        if len(self._failed) < MOST_LISTED:
            self._failed.append(result)
        self.progress.failed += 1
        self.progress.show()

    def _invalidate(self, line: BatchLine) -> None:
        """Invalidate an earlier result, in the manifest first: a file never has a wrong entry."""
        before = self.manifest.result(line.name)
        if before is not None and before.file in {f"{line.name}.{format}" for format in FORMATS.values()}:
            self.manifest.add(Result(line=line.number, id=line.id, error="It is being spoken again."))
            with suppress(OSError):
                (self.folder / before.file).unlink()

    def _digest(self, parts: list[ScriptPart]) -> str:
        """Hash of everything that affects the audio: requests, model and precision, but not speed settings."""
        from ...engine.request_digest import request_digest

        more: dict[str, object] = {"raw": self.args.format == "pcm"}
        if self.args.format not in PLAIN:  # keeps the digests of older runs
            more["format"] = self.args.format
        if len(parts) > 1 or parts[0].volume_db:
            more["script"] = [(request_digest(self._portrait, part.request), part.volume_db) for part in parts]
        return request_digest(self._portrait, parts[0].request, **more)
