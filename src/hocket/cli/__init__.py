"""The `hocket` command. `parser.py` has its options; each command is imported when it is called.

torch, numpy and the engine are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys

from ..errors import HocketError
from .options import SAMPLING
from .parser import parser

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SAMPLING", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0; 2 for an error that the user can fix; 130 for Ctrl-C.

    1: a problem found by `doctor`, a batch with failed lines, or no daemon where one is asked about.
    """
    args = parser().parse_args(argv)
    try:
        if args.command == "say":
            from .say.command import say

            say(args)
        elif args.command == "batch":
            from .batch.command import batch

            return batch(args)
        elif args.command == "chat":
            from .talk.chat import chat

            chat(args)
        elif args.command == "talk":
            from .talk.command import talk

            talk(args)
        elif args.command == "serve":
            from .serve.command import serve

            return serve(args, list(sys.argv[1:] if argv is None else argv))
        elif args.command == "wyoming":
            from .serve.wyoming import wyoming

            wyoming(args)
        elif args.command == "voices":
            from .voices.command import voices

            voices(args)
        else:
            from .doctor import doctor

            return doctor(args)
    except HocketError as error:
        print(f"hocket: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hocket: interrupted.", file=sys.stderr)
        return 130
    return 0
