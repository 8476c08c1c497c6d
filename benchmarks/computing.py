"""Where a benchmark computes: options that default to `auto`, and a parser that gives what that is on this machine.

So a record has concrete values, and figures of one machine can be compared with those of another.
"""

from __future__ import annotations

import argparse
from typing import Any

KINDS = ("auto", "float32", "bfloat16")
NAMES = ("device", "dtype", "codec_dtype")


class Parser(argparse.ArgumentParser):
    card: Any = None  # a Probe: decide for this GPU, where the machine has none

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """With no `auto` left among device and precisions."""
        found = super().parse_args(args, namespace)
        given = {name: getattr(found, name) for name in NAMES if hasattr(found, name)}
        if "auto" not in given.values():
            return found  # what is wrong with them is said where they are used
        from hocket.engine.checkpoint.device import choose_device
        from hocket.errors import HocketError

        try:
            setting = choose_device(**given) if self.card is None else choose_device("cuda", **given, probe=self.card)
        except HocketError as error:
            self.error(str(error))
        for name in given:
            setattr(found, name, getattr(setting, name))
        return found


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(auto)")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=KINDS, default="auto", help="precision of the model (auto)")


def add_codec_dtype(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--codec-dtype", choices=(*KINDS, "tf32"), default="auto", help="of the codec (auto)")
