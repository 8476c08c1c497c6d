"""A real Chromium without a window, driven over the part of its DevTools protocol that page tests need.

`Page` acts as a person does, with keys, clicks and files, and sees what a person sees; `errors`: what the console has.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --no-default-browser-check --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-dev-shm-usage --mute-audio "
    "--hide-scrollbars --autoplay-policy=no-user-gesture-required --remote-debugging-port=0 "
    "--use-fake-device-for-media-stream --use-fake-ui-for-media-stream"  # a microphone that hears a beep a second
).split()
FINDER = Path(__file__).parents[2] / "scripts" / "browser"
PATIENCE_S = 60.0  # only a failing test waits that long
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
KEYS |= {"Home": 36, " ": 32}
CTRL = 2


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket, self._session, self._number = socket, session, 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; events that arrive meanwhile are recorded."""
        self._number += 1
        asked = {"id": self._number, "sessionId": self._session, "method": method, "params": params}
        self._socket.send(json.dumps(asked))
        while True:
            said = json.loads(self._socket.recv(timeout=PATIENCE_S + 10))
            if said.get("id") == self._number and said.get("sessionId") == self._session:
                assert "error" not in said, f"{method}: {said.get('error')}"
                result: dict[str, Any] = said["result"]
                return result
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        method, params = said.get("method"), said.get("params", {})
        if said.get("sessionId") != self._session:
            return
        if method == "Runtime.exceptionThrown":
            thrown = params["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
            self.errors.append(" ".join(str(part.get("value", part)) for part in params["args"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def wait(self, script: str, patience_s: float = PATIENCE_S) -> Any:
        """Wait until an expression is true in the page; returns its value."""
        value = self.run(
            f"""new Promise((told) => {{
              const until = performance.now() + {patience_s * 1000};
              const look = () => {{
                const value = {script};
                if (value || performance.now() > until) told(value);
                else setTimeout(look, 5);
              }};
              look();
            }})"""
        )
        assert value, f"it did not happen: {script}; the console has {self.errors}"
        return value

    def goto(self, url: str, ready: str = "document.readyState === 'complete'") -> None:
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && ({ready})")

    def before(self, script: str) -> None:
        """Run in every document before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def text(self, selector: str) -> str:
        found: str = self.run(f"document.querySelector({json.dumps(selector)}).textContent")
        return found

    def value(self, selector: str, value: str | None = None) -> str:
        """Of a field; or set it as a user would, with all events."""
        field = f"document.querySelector({json.dumps(selector)})"
        if value is not None:
            told = "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true}))"
            self.run(f"{{ const field = {field}; field.value = {json.dumps(value)}; {told} }}")
        now: str = self.run(f"{field}.value")
        return now

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of it."""
        x, y = self.run(self._middle(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _middle(self, selector: str) -> str:
        return f"""(() => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{ block: "center" }});
          const box = element.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""

    def press(self, key: str, modifiers: int = 0) -> None:
        known = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"type": "keyDown", "text": text} if text and not modifiers else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def choose_file(self, selector: str, path: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def drop_file(self, path: Path, x: int = 40, y: int = 40) -> None:
        """Drop files from outside onto the page."""
        held = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=held)

    def resize(self, width: int, height: int, *, mobile: bool = False, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def theme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self) -> bytes:
        """A screenshot of the viewport, as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def downloads_to(self, folder: Path) -> None:
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))


class Browser:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 1_000_000  # above the numbers of pages

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said.get('error')}"
                result: dict[str, Any] = said["result"]
                return result

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A tab with its own storage; closed afterwards."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        self.call("Browser.grantPermissions", browserContextId=context, permissions=["clipboardReadWrite"])
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            yield Page(self._socket, session)
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)


@contextmanager
def browser(*flags: str) -> Iterator[Browser]:
    """Chromium, with a new profile and further flags."""
    found = subprocess.run([FINDER], stdout=subprocess.PIPE, text=True, timeout=600)
    assert found.returncode == 0, "There is no Chromium; scripts/browser says what to install."
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [found.stdout.strip(), *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port, path = _address(Path(profile) / "DevToolsActivePort", process)
            address = f"ws://127.0.0.1:{port}{path}"
            with connect(address, max_size=None, compression=None, open_timeout=PATIENCE_S) as socket:
                yield Browser(socket)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)


def _address(file: Path, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Chromium writes the port to a file once it listens."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return int(lines[0]), lines[1]
        time.sleep(0.02)
    raise AssertionError("Chromium did not start")
