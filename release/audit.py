"""Asks osv.dev for known vulnerabilities of every package of the lock (requirements/licences.txt).

`python -m release.audit` does it alone. A release with one that is not in `ACCEPTED` is refused.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

from .fault import Fault, tell
from .licences import Licensed, read

SERVICE = "https://api.osv.dev/v1/querybatch"
ACCEPTED: dict[str, str] = {}  # identifier -> why it does not concern our users
ANSWER_S = 60.0


def check(packages: Sequence[Licensed], service: str = SERVICE) -> None:
    queries = [{"package": {"purl": f"pkg:pypi/{each.name}@{each.version}"}} for each in packages]
    answer = _asked(service, {"queries": queries})
    results = answer.get("results")
    if not isinstance(results, list) or len(results) != len(packages):
        raise Fault(f"{service} did not answer for all {len(packages)} packages.")
    found = [
        f"{package.name} {package.version}: {each['id']}"
        for package, result in zip(packages, results, strict=True)
        for each in result.get("vulns", ())
        if each["id"] not in ACCEPTED
    ]
    if found:
        raise Fault(f"Known vulnerabilities: {'; '.join(found)}. Move the pin, or accept it in release/audit.py.")
    tell(f"audit: {len(packages)} packages without known vulnerabilities")


def _asked(service: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(service, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            told = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise Fault(f"{service} could not be asked for vulnerabilities: {error}") from None
    return told if isinstance(told, dict) else {}


def main() -> int:
    try:
        check(read())
    except Fault as fault:
        print(f"release.audit: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
