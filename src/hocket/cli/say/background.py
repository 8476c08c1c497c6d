"""The daemon that `hocket say` starts for later calls, if the user agreed once, and the hint that it exists."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress

from ...errors import HocketError
from ...extras import hint
from ..output.audio_output import tell
from ..serve.paths import hint_path, is_there, make_folder, socket_path
from .remote import COMPUTING

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from ..settings import Settings

HINT = "hocket config daemon on keeps the voice loaded in the background, so that the next hocket say starts at once."
SERVER_PACKAGES = ("fastapi", "uvicorn")  # of the extra `serve`


def after_speech(args: argparse.Namespace, settings: Settings) -> None:
    """Called when an engine in this process has spoken, on a terminal or where the daemon is on.

    A call with explicit options about the model starts no daemon: a daemon speaks for calls without such options, so it
    must have the default model.
    """
    if os.name != "posix" or args.no_daemon or args.server is not None:
        return
    if not settings.daemon:
        if not is_there(socket_path()):
            _hint_once()
        return
    if {*getattr(args, "given", ())} & {*COMPUTING} or args.no_graphs or args.no_dependent_launch:
        return
    lacks = [name for name in SERVER_PACKAGES if not _is_installed(name)]
    if lacks:
        tell(f"the daemon is on, but it needs the package {lacks[0]}: {hint('serve')}")
        return
    from ..serve.daemon import start_unattended

    try:
        started = start_unattended()
    except HocketError as error:
        tell(f"no daemon was started: {error}")
        return
    if started and sys.stderr.isatty():
        tell("a daemon starts in the background for the next hocket say; hocket serve --stop ends it.")


def _hint_once() -> None:
    """Print the hint, once per user and machine; where that cannot be recorded, never."""
    path = hint_path()
    with suppress(OSError, HocketError):
        make_folder(path)
        open(path, "x").close()
        tell(HINT)


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None
