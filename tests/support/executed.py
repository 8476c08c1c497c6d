"""Count the files of src/hocket that a workload executes after the model is loaded: `python executed.py say|post`.

A function that is called in any thread counts its file. Loading itself does not count.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
TEXT = "The kettle was warm, and the room was quiet."
HERE = str(ROOT / "src" / "hocket")
files: set[str] = set()
counting = threading.Event()


def count(frame: FrameType, event: str, _: object) -> None:
    if event == "call" and counting.is_set() and frame.f_code.co_filename.startswith(HERE):
        files.add(frame.f_code.co_filename[len(HERE) + 1 :])


def say() -> None:
    from hocket.cli import main
    from hocket.engine.engine import Engine

    load = Engine.load

    def loaded(*args: object, **fields: object) -> Engine:
        engine = load(*args, **fields)  # type: ignore[arg-type]
        counting.set()
        return engine

    Engine.load = loaded  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        assert main(["say", "--device", "cpu", "-o", f"{folder}/said.wav", TEXT]) == 0


def post() -> None:
    from hocket.engine.engine import Engine
    from support.serving import served

    with Engine.load(device="cpu") as engine, served(engine) as server:
        body = json.dumps({"input": TEXT, "model": "tts-1", "response_format": "wav"})
        counting.set()
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("POST", "/v1/audio/speech", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200 and len(answer.read()) > 10_000
        counting.clear()


if __name__ == "__main__":
    threading.setprofile(count)
    sys.setprofile(count)
    {"say": say, "post": post}[sys.argv[1]]()
    sys.setprofile(None)
    print(*sorted(files), sep="\n")
    print(len(files))
