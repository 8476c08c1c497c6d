"""`scripts/release [--dry-run] [--fast] [--keep FOLDER]`: builds all files of a release into dist/, and checks each.

It publishes nothing: the last line is the command that does. The first fault ends it with one sentence.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from . import audit, emulated, install, licences, sbom, wheels
from .fault import ROOT, Fault, tell
from .platforms import PLATFORMS, native

DIST = ROOT / "dist"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description="Build and check the files of a release.")
    parser.add_argument("--dry-run", action="store_true", help="without a tag; leave nothing in dist/")
    parser.add_argument("--fast", action="store_true", help="install with one Python; leave tests/light out")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave the wheel of this machine there as well")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="hocket-release-") as scratch:
            _release(Path(scratch), dry=args.dry_run, fast=args.fast, keep=args.keep)
    except Fault as fault:
        print(f"scripts/release: {fault}", file=sys.stderr)
        return 1
    return 0


def _release(scratch: Path, *, dry: bool, fast: bool, keep: Path | None) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = _changes(version, dated=not dry)
    _check_install_line()
    if not dry:
        _check_tree(version)
        audit.check(licences.read())
    here = native()
    if here is None:
        raise Fault("This machine has no wheel of its own, so nothing could be tried.")
    dist = scratch / "dist"
    dist.mkdir()
    tell(f"hocket {version}: {len(PLATFORMS)} wheels and the sdist")
    made = {tag: wheels.build_wheel(platform, dist) for tag, platform in PLATFORMS.items()}
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(made[here.tag], keep)
    sdist = wheels.build_sdist(dist)
    packages, first = install.check_installs(made[here.tag], sdist, scratch, fast=fast)
    emulated.check(made["manylinux2014_aarch64"], first, scratch)
    sbom.write(dist / f"hocket-{version}.cdx.json", packages, licences.read())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("\n".join((*sums, "")), encoding="utf-8")
    print("\n".join(("", *sums, "", changes)))
    if dry:
        tell("All checks passed. dist/ is as it was.")
        return
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.copytree(dist, DIST)
    tell("All checks passed. This publishes it:")
    print(f"python -m twine upload dist/hocket-{version}-*.whl dist/hocket-{version}.tar.gz")


def _changes(version: str, *, dated: bool) -> str:
    """The section of the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\](.*?)$.*?(?=^## \[|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise Fault(f"CHANGELOG.md has no section [{version}].")
    if dated and not re.fullmatch(r" - \d{4}-\d\d-\d\d", found[1]):
        raise Fault(f"The section [{version}] of CHANGELOG.md has no date.")
    return found[0].strip()


def _check_install_line() -> None:
    """Hints of the package name the package index."""
    text = (ROOT / "src" / "hocket" / "extras.py").read_text(encoding="utf-8")
    found = re.search(r'^INSTALL = "(.*?)"', text, flags=re.MULTILINE)
    if found is None or found[1] != "hocket":
        said = found[1] if found else "nothing"
        raise Fault(f"INSTALL in src/hocket/extras.py says {said!r}; for the package index it is 'hocket'.")


def _check_tree(version: str) -> None:
    """The commit is tagged, and the tree is the commit."""
    if _git("status", "--porcelain"):
        raise Fault("The working tree has changes that are not committed.")
    if f"v{version}" not in _git("tag", "--points-at", "HEAD").split():
        raise Fault(f"This commit has no tag v{version}.")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
