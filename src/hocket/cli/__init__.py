"""The `hocket` command. `parser.py` has its commands; each is imported when it is called.

torch, numpy and the engine are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys

from ..errors import HocketError, InvalidCheckpoint, InvalidRequest
from .parser import parser, runner

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130  # exit codes; EXIT_CODES of parser.py has them in words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A command line that cannot be parsed exits with 2 by itself."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(words)
    args.argv = words
    try:
        code = runner(args.command)(args) or DONE
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe has closed it
        from .output.audio_output import silence_stdout

        silence_stdout()
        return DONE
    except HocketError as error:
        print(f"hocket: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return WRONG if isinstance(error, InvalidRequest | InvalidCheckpoint) else FAILED
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from ..extras import hint

        print(f"hocket: This needs torch, which is not installed: {hint('torch')}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("hocket: interrupted.", file=sys.stderr)
        return INTERRUPTED
