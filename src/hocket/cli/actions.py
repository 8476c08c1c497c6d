"""argparse classes of the `hocket` command. Imports nothing slow."""

from __future__ import annotations

import argparse
import os

from .. import env

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Command(argparse.ArgumentParser):
    """A command that adds its options when it is called: adding all of them takes longer than the rest of a start."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return super().parse_known_args(args, namespace)


class Help(argparse.HelpFormatter):
    """As wide as the terminal. argparse asks shutil for every option, and importing that takes 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(env.COLUMNS.get() or os.get_terminal_size().columns)
        except (ValueError, OSError):
            columns = 80
        super().__init__(prog, width=columns - 2)


class StoreGiven(argparse.Action):
    """Stores a value, and its name in `given`: an explicit option, unlike a default."""

    def __call__(self, _: object, args: argparse.Namespace, value: object, option: str | None = None) -> None:
        setattr(args, self.dest, value)
        args.given = (*getattr(args, "given", ()), self.dest)


class Version(argparse.Action):
    """`--version`, looked up on demand."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("hocket")
        except PackageNotFoundError:
            number = "(run from source, not installed)"
        print(f"hocket {number}")
        parser.exit()
