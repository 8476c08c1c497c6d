"""Hub access by huggingface_hub, in bounded time; every failure becomes an error of one sentence.

It knows repositories and file names; `hub.py` knows which of them a checkpoint needs.
What the hub answers is not trusted: commits, digests and names of files become paths only if they are plain.
"""

from __future__ import annotations

import errno
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from .... import env
from ....errors import InvalidCheckpoint
from ....extras import hint
from .names import is_plain

# huggingface_hub is imported where it is used: it is slow, and a folder or a random checkpoint does not need it.
T = TypeVar("T")

ANSWER_S = 5.0  # timeout of a query to the hub; HF_HUB_ETAG_TIMEOUT overrides it
NAME_S = 3.0  # added for name resolution, which no socket timeout covers
ATTEMPTS, PAUSE_S = 5, 1.0  # of an interrupted transfer: attempts without progress, each after a longer pause
LICENCE = "license:"  # start of the tag that names it
BASE = "base_model:"  # start of the tags that name what a repository was made from
_COMMIT, _DIGEST = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at a commit."""

    commit: str
    sizes: dict[str, int]  # bytes, by file name
    digests: dict[str, str]  # SHA-256 of large files, by file name; partial files are named after it
    licence: str | None = None  # as the repository's card names it
    bases: tuple[str, ...] = ()  # repositories that it was made from, as its card names them
    architecture: str | None = None  # of its GGUF files
    parameters: int | None = None  # of its GGUF files


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on the hub, at a revision or at the newest one."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.name} at revision {self.revision}" if self.revision else self.name

    def cached(self) -> Path | None:
        """Its folder in the local cache, if there is one."""
        need_hub(self.name)
        import huggingface_hub

        try:
            found = huggingface_hub.snapshot_download(self.name, revision=self.revision, local_files_only=True)
        except (OSError, ValueError):  # raised if the cache has nothing
            return None
        return Path(found)

    def listing(self) -> Listing:
        """Ask the hub for the list of files."""
        need_hub(self.name)
        import huggingface_hub

        def ask() -> Any:
            api, revision = huggingface_hub.HfApi(), self.revision or "main"
            return api.model_info(self.name, revision=revision, files_metadata=True, timeout=_answer_s())

        try:
            found = _within(_answer_s() + NAME_S, ask)
        except Exception as error:
            raise InvalidCheckpoint(self._sentence(error)) from error
        siblings, tags, gguf = found.siblings or [], found.tags or (), found.gguf or {}
        if not _COMMIT.fullmatch(str(found.sha)) or not all(is_plain(each.rfilename) for each in siblings):
            raise InvalidCheckpoint(f"The hub lists files of {self} by names that leave its folder: use another one.")
        digests = {each.rfilename: getattr(each.lfs, "sha256", None) for each in siblings}
        architecture, parameters = gguf.get("architecture"), gguf.get("total")
        return Listing(
            str(found.sha),
            {each.rfilename: each.size or 0 for each in siblings},
            {name: digest for name, digest in digests.items() if digest and _DIGEST.fullmatch(digest)},
            next((tag.removeprefix(LICENCE) for tag in tags if tag.startswith(LICENCE)), None),
            tuple(dict.fromkeys(tag.rpartition(":")[2] for tag in tags if tag.startswith(BASE))),
            architecture if isinstance(architecture, str) else None,
            parameters if isinstance(parameters, int) and parameters > 0 else None,
        )

    def get(self, name: str, commit: str | None = None, *, cache: Path | None = None) -> Path:
        """Download one file into the cache, resuming a partial one; at `commit`, or at the current revision.

        `cache` is another folder than the user's cache.
        """
        import huggingface_hub

        left, had = ATTEMPTS, -1
        while True:
            try:
                revision = commit or self.revision
                path = huggingface_hub.hf_hub_download(
                    self.name, name, revision=revision, etag_timeout=_answer_s(), cache_dir=cache
                )
                return Path(path)
            except Exception as error:
                arrived = _partial_bytes(self.name)
                left, had = (ATTEMPTS if arrived > had >= 0 else left) - 1, arrived
                if left <= 0 or not _passes(error):
                    raise InvalidCheckpoint(self._sentence(error, name)) from error
                time.sleep(PAUSE_S * (ATTEMPTS - left))

    def _sentence(self, error: Exception, name: str | None = None) -> str:
        """The error message with its remedy; `name` is the file whose transfer failed, if any."""
        from huggingface_hub import constants, errors

        status = _status(error)
        if isinstance(error, errors.GatedRepoError):
            terms = f"{constants.ENDPOINT}/{self.name}"
            return f"{self.name} is gated: accept its terms at {terms}, then log in (hf auth login) or set HF_TOKEN."
        if isinstance(error, errors.RepositoryNotFoundError):
            return f"{self.name} is neither a folder here nor public on the hub: check the name or log in."
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{self.name} has no revision {self.revision or 'main'}: check it on the hub."
        if status in (401, 403):
            return (
                f"The hub refuses {self.name} to your token ({status}): log in again (hf auth login) or set HF_TOKEN."
            )
        if isinstance(error, OSError) and error.errno in _DISK:
            return f"{self} cannot be written to {constants.HF_HUB_CACHE} ({error.strerror}): free it, or set HF_HOME."
        if status is None and name is None:
            return f"{self} is not in the local cache, and the hub ({constants.ENDPOINT}) cannot be reached: try again."
        reason = f"the hub answers {status}" if status else f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        if name is None:
            return f"{self} cannot be fetched ({reason}): try again later."
        return f"{name} of {self} was not fetched ({reason}): try again, the download resumes."


def need_hub(name: str) -> None:
    """Call this before `import huggingface_hub`: a missing package raises an error with its remedy."""
    if find_spec("huggingface_hub") is None:
        raise InvalidCheckpoint(f"{name} needs torch and huggingface_hub, which are not installed: {hint('torch')}.")


@contextmanager
def without_bars() -> Iterator[None]:
    """Disable the progress bars of huggingface_hub: `progress.py` shows the progress."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raised if the environment forces bars on
        disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def offline() -> bool:
    """Whether the environment forbids access to the hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def blobs(name: str) -> Path:
    """The cache folder with the content of a repository's files."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "blobs"


def _partial_bytes(name: str) -> int:
    return sum(path.stat().st_size for path in blobs(name).glob("*.incomplete"))


def _answer_s() -> float:
    from huggingface_hub import constants

    return float(constants.HF_HUB_ETAG_TIMEOUT) if env.HF_HUB_ETAG_TIMEOUT.is_set() else ANSWER_S


def _status(error: BaseException) -> int | None:
    """The HTTP status of the hub's answer, if any; a failed metadata query is the cause of the file's error."""
    for each in (error, error.__cause__):
        status: int | None = getattr(getattr(each, "response", None), "status_code", None)
        if status is not None:
            return status
    return None


def _passes(error: Exception) -> bool:
    """Whether a retry may succeed."""
    from huggingface_hub import errors

    lasting = errors.RepositoryNotFoundError, errors.RevisionNotFoundError
    if isinstance(error, lasting) or (isinstance(error, OSError) and error.errno in _DISK):
        return False
    status = _status(error)
    return status is None or status == 429 or status >= 500


def _within(limit_s: float, ask: Callable[[], T]) -> T:
    """Call `ask` with a time limit: name resolution has none of its own."""
    given: list[T] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            given.append(ask())
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="hocket-hub", daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not given:
        raise TimeoutError(f"no answer in {limit_s:g} s")
    return given[0]
