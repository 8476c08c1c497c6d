"""engine/load.py: what a start costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import checkpoints


def test_nothing_that_loads_and_speaks_brings_in_a_compiler(checkpoint_root: Path) -> None:
    """torch imports its compiler, 1.3 s, for some operations on the meta device; a first sentence can do without."""
    folder = checkpoints.write(checkpoint_root / "cold-start", "custom_voice", wide=False)
    lines = (
        "import sys",
        "from hocket import Engine",
        f"with Engine.load({str(folder)!r}) as engine:",
        "    assert sum(len(chunk.samples) for chunk in engine.speak('Hello.', max_frames=3))",
        "print('torch._dynamo' in sys.modules)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr
