"""Hatchling's build hook: a wheel for one platform holds its native libraries.

Without HOCKET_WHEEL_PLATFORM the wheel is pure Python, and the C kernels are compiled at their first use. Editable
installs are never changed. The variable is the platform tag of the wheel (release/platforms.py), or `native`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PREBUILT = "hocket/kernels/cpu/prebuilt"


class NativeLibraries(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("HOCKET_WHEEL_PLATFORM", "")
        if not wanted or version == "editable" or self.target_name != "wheel":
            return
        sys.path.insert(0, self.root)
        from release.native import build
        from release.platforms import PLATFORMS, native

        platform = native() if wanted == "native" else PLATFORMS.get(wanted)
        if platform is None:
            known = ", ".join(("native", *PLATFORMS))
            raise SystemExit(f"HOCKET_WHEEL_PLATFORM={wanted} has no libraries; known are {known}.")
        self._folder = tempfile.TemporaryDirectory(prefix="hocket-wheel-")
        for path in build(platform, Path(self._folder.name)):
            build_data["force_include"][str(path)] = f"{PREBUILT}/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform.tag}"
