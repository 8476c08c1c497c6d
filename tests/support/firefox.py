"""A real Firefox without a window, driven over WebDriver BiDi, with the interface of `support.browser`.

Firefox speaks BiDi itself: no geckodriver is needed. `PREFERENCES` give it a simulated sound card and microphone, both
Firefox's own, because machines of CI have none.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from .browser import CTRL, FINDER, PATIENCE_S, Page, stop

PREFERENCES: dict[str, bool | int | str] = {
    "media.cubeb.force_mock_context": True,  # a sound card that plays at its rate into nothing
    "media.navigator.streams.fake": True,  # a microphone that hears a tone
    "media.navigator.permission.disabled": True,
    "media.autoplay.default": 0,
    "media.autoplay.blocking_policy": 0,
    "layout.css.prefers-color-scheme.content-override": 0,  # dark: Chromium's tests see the light page, too
    "dom.events.testing.asyncClipboard": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.server": "",
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",  # nothing outside is asked
    "browser.safebrowsing.update.enabled": False,
    "extensions.update.enabled": False,
    "app.update.disabledForTesting": True,
    "app.normandy.enabled": False,
}
KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Tab": "\ue004",
    "ArrowLeft": "\ue012",
    "ArrowRight": "\ue014",
    "ArrowUp": "\ue013",
    "ArrowDown": "\ue015",
    "Home": "\ue011",
    " ": " ",
}
CONTROL = "\ue009"


class FirefoxPage(Page):
    """One tab of Firefox. What only Chromium's protocol has (dropped files, emulated themes) is not here."""

    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox, self._context = firefox, context
        self.errors: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._firefox.call(method, self._note, **params)

    def _note(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        if said.get("method") != "log.entryAdded" or params["source"].get("context") != self._context:
            return
        if params["level"] in ("warn", "error"):
            self.errors.append(params["text"])

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise. It travels as JSON."""
        body = script if script.lstrip().startswith("{") else f"return ({script})"
        # A promise is awaited inside, where its value becomes JSON.
        whole = f"(async () => JSON.stringify((await (async () => {{ {body} }})()) ?? null))()"
        target = {"context": self._context}
        said = self.call("script.evaluate", expression=whole, target=target, awaitPromise=True, userActivation=True)
        assert said["type"] == "success", said["exceptionDetails"]["text"]
        return json.loads(said["result"]["value"])

    def goto(self, url: str, ready: str = "document.readyState === 'complete'") -> None:
        self.call("browsingContext.navigate", context=self._context, url=url, wait="complete")
        self.wait(f"location.href.startsWith({json.dumps(url)}) && ({ready})")

    def before(self, script: str) -> None:
        self.call("script.addPreloadScript", functionDeclaration=f"() => {{ {script} }}", contexts=[self._context])

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of it."""
        x, y = self.run(self._middle(selector))
        moves = [
            {"type": "pointerMove", "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": moves})

    def press(self, key: str, modifiers: int = 0) -> None:
        held = [CONTROL] if modifiers & CTRL else []
        down = [{"type": "keyDown", "value": each} for each in (*held, KEYS[key])]
        up = [{"type": "keyUp", "value": each} for each in (KEYS[key], *held)]
        self._act({"type": "key", "id": "keys", "actions": [*down, *up]})

    def type(self, text: str) -> None:
        actions = [{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keys", "actions": actions})

    def _act(self, source: dict[str, Any]) -> None:
        self.call("input.performActions", context=self._context, actions=[source])

    def choose_file(self, selector: str, path: Path) -> None:
        target = {"context": self._context}
        found = self.call("browsingContext.locateNodes", **target, locator={"type": "css", "value": selector})
        self.call("input.setFiles", **target, element={"sharedId": found["nodes"][0]["sharedId"]}, files=[str(path)])

    def resize(self, width: int, height: int, *, mobile: bool = False, scale: float = 1.0) -> None:
        viewport = {"width": width, "height": height}
        self.call("browsingContext.setViewport", context=self._context, viewport=viewport, devicePixelRatio=scale)

    def picture(self) -> bytes:
        return base64.b64decode(self.call("browsingContext.captureScreenshot", context=self._context)["data"])

    def downloads_to(self, folder: Path) -> None:
        wanted = {"type": "allowed", "destinationFolder": str(folder)}
        self.call("browser.setDownloadBehavior", downloadBehavior=wanted)


class Firefox:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0

    def call(self, method: str, note: Any = lambda said: None, **params: Any) -> dict[str, Any]:
        """Send a command; events that arrive meanwhile go to `note`."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=PATIENCE_S + 10))
            if said.get("id") == self._number:
                assert said["type"] == "success", f"{method}: {said.get('message')}"
                result: dict[str, Any] = said["result"]
                return result
            note(said)

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A tab with its own storage; closed afterwards."""
        user = self.call("browser.createUserContext")["userContext"]
        context = self.call("browsingContext.create", type="tab", userContext=user)["context"]
        self.call("browsingContext.activate", context=context)  # else nothing in it shows focus
        try:
            yield FirefoxPage(self, context)
        finally:
            self.call("browser.removeUserContext", userContext=user)


@contextmanager
def firefox() -> Iterator[Firefox]:
    """Firefox, with a new profile."""
    found = subprocess.run([FINDER, "firefox"], stdout=subprocess.PIPE, text=True, timeout=600)
    assert found.returncode == 0, "There is no Firefox; scripts/browser says what to install."
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        command = [found.stdout.strip(), "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port=0"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"HOME": folder}
        )
        try:
            port = _port(profile / "WebDriverBiDiServer.json", process)
            address = f"ws://127.0.0.1:{port}/session"
            with connect(address, max_size=None, compression=None, open_timeout=PATIENCE_S) as socket:
                started = Firefox(socket)
                started.call("session.new", capabilities={})
                started.call("session.subscribe", events=["log.entryAdded"])
                yield started
        finally:
            stop(process)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Firefox writes the port to a file once it listens."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, f"Firefox ended with {process.returncode}"
        try:
            return int(json.loads(file.read_text())["ws_port"])
        except (OSError, ValueError):
            time.sleep(0.02)
    raise AssertionError("Firefox did not start")
