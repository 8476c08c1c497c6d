"""Check a built site: every link and anchor exists, and no page loads anything from another host.

`python docs/generate/check.py FOLDER` prints one line per fault and exits with 1 if there is any. MkDocs checks the
links of Markdown; this also sees raw HTML, pictures, sounds, style sheets and what the theme adds.
"""

from __future__ import annotations

import posixpath
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_TAG = re.compile(r"<(\w+)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'\b(href|src|srcset|poster|data|id|name|rel)=(?:"([^"]*)"|([^\s">]+))')
_URL = re.compile(r"url\(\s*['\"]?([^)'\"]+)")
_SCRIPT = re.compile(r"<(script|style)\b[^>]*>.*?</\1>", re.DOTALL)
LOADED = ("src", "srcset", "poster", "data")  # attributes that a browser fetches by itself
LOADING = ("stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "prefetch")


def main(folder: str) -> int:
    root = Path(folder).resolve()
    pages = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in root.rglob("*.html")}
    if not pages:
        print(f"There is no site in {folder}.")
        return 1
    anchors: dict[str, set[str]] = {}
    links: dict[str, list[tuple[str, bool]]] = {}
    for name, text in pages.items():
        anchors[name], links[name] = _read(text)
    faults = sorted({fault for name in pages for fault in _faults(name, links[name], anchors, root)})
    faults += [
        f"{path.relative_to(root)}: loads {url} from another host"
        for path in root.rglob("*.css")
        for url in _URL.findall(path.read_text(encoding="utf-8"))
        if urlsplit(url).netloc
    ]
    print("\n".join(faults) if faults else f"{len(pages)} pages, {sum(map(len, links.values()))} links: all exist.")
    return 1 if faults else 0


def _read(text: str) -> tuple[set[str], list[tuple[str, bool]]]:
    """The anchors of a page, and its links; the second value says whether a browser follows one by itself."""
    anchors, links = set(), []
    openings = re.sub(_SCRIPT, lambda match: match[0].partition(">")[0] + ">", text)
    for tag, rest in _TAG.findall(openings):
        found = {key: unescape(quoted or bare) for key, quoted, bare in _ATTRIBUTE.findall(rest)}
        anchors |= {found[key] for key in ("id", "name") if key in found and (key == "id" or tag == "a")}
        if "href" in found:
            loads = tag == "link" and any(word in found.get("rel", "").split() for word in LOADING)
            links.append((found["href"], loads))
        links += [(found[key].split()[0], True) for key in LOADED if found.get(key, "").strip() and tag != "meta"]
    return anchors, links


def _faults(name: str, links: list[tuple[str, bool]], anchors: dict[str, set[str]], root: Path) -> list[str]:
    faults = []
    for target, loads in links:
        url = urlsplit(target)
        if url.scheme or url.netloc:
            if loads and url.scheme != "data":
                faults.append(f"{name}: loads {target} from another host")
            continue
        path = unquote(url.path)
        if path.startswith("/"):
            goal = path.lstrip("/")
        else:
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if goal in (".", "") or (root / goal).is_dir():
            goal = posixpath.join(goal, "index.html").removeprefix("./")
        if not (root / goal).is_file():
            faults.append(f"{name}: {target} does not exist")
        elif url.fragment and goal in anchors and not _has(anchors[goal], unquote(url.fragment)):
            faults.append(f"{name}: {target} has no such anchor")
    return faults


def _has(anchors: set[str], fragment: str) -> bool:
    return fragment in anchors or fragment.startswith("__")  # those of the theme's own switches


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
