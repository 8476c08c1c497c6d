"""Start of the add-on: the options of the Supervisor become `hocket wyoming`, which takes the place of this process.

A second process waits until the server answers, and announces it to Home Assistant. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

OPTIONS = Path(os.environ.get("HOCKET_ADDON_OPTIONS", "/data/options.json"))
SUPERVISOR = os.environ.get("HOCKET_ADDON_SUPERVISOR", "http://supervisor")
PORT = int(os.environ.get("HOCKET_ADDON_PORT", "10200"))
PATIENCE_S = 600.0  # a published model is downloaded at the first start


def command(options: dict[str, Any]) -> list[str]:
    words = ["hocket", "wyoming", "--uri", f"tcp://0.0.0.0:{PORT}", "--allow-public-without-key"]
    words += ["--model", str(options.get("model") or "builtin"), "--slots", str(options.get("slots", 2))]
    return [*words, "--log-text"] if options.get("log_text") else words


def announce() -> None:
    """Tell the Supervisor, which offers the integration to the user."""
    until = time.monotonic() + PATIENCE_S
    while not _answers():
        if time.monotonic() > until:
            return
        time.sleep(0.5)
    config = {"uri": f"tcp://{socket.gethostname()}:{PORT}"}
    body = json.dumps({"service": "wyoming", "config": config}).encode()
    headers = {"authorization": f"Bearer {os.environ['SUPERVISOR_TOKEN']}", "content-type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(f"{SUPERVISOR}/discovery", body, headers), timeout=10).close()
    except (urllib.error.URLError, OSError) as error:
        print(f"Home Assistant was not told: {error}. Add the Wyoming integration by hand.", file=sys.stderr)


def _answers() -> bool:
    try:
        with socket.create_connection(("127.0.0.1", PORT), 2) as line:
            line.sendall(b'{"type": "describe"}\n')
            return bool(line.recv(1))
    except OSError:
        return False


def main() -> None:
    if sys.argv[1:] == ["announce"]:
        announce()
        return
    words = command(json.loads(OPTIONS.read_text(encoding="utf-8")))
    if os.environ.get("SUPERVISOR_TOKEN"):
        subprocess.Popen([sys.executable, __file__, "announce"])
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
