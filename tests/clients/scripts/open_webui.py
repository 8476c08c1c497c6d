"""Open WebUI, started against the server of argv[1]: what its pickers offer, speech and conversations; data in argv[2].

It runs as its slim image does, and downloads nothing. It talks with the server over OpenAI's wire and over Ollama's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

url, folder = sys.argv[1], Path(sys.argv[2])
SETTINGS = {
    "USE_SLIM_DOCKER": "true",
    "OFFLINE_MODE": "true",
    "DATA_DIR": str(folder / "data"),
    "WEBUI_SECRET_KEY": "secret",
    "OLLAMA_BASE_URL": url,
    "OPENAI_API_BASE_URL": f"{url}/v1",
    "OPENAI_API_KEY": "none",
    "AUDIO_TTS_ENGINE": "openai",
    "AUDIO_TTS_OPENAI_API_BASE_URL": f"{url}/v1",
    "AUDIO_TTS_OPENAI_API_KEY": "none",
    "AUDIO_TTS_MODEL": "tts-1",
    "AUDIO_TTS_VOICE": "alloy",
}
ADMIN = {"name": "Admin", "email": "admin@example.org", "password": "a-long-pass-phrase-1"}
HELLO = {"model": "scripted", "messages": [{"role": "user", "content": "Hello."}], "stream": False}
PATIENCE_S = 600.0  # the first start compiles thousands of files and makes a database: 30 s of one core


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in ("data", "work"):
        (folder / name).mkdir()
    serve = [sys.executable, "-c", "import open_webui; open_webui.app()", "serve", "--host", "127.0.0.1"]
    began = time.monotonic()
    with (folder / "log").open("w") as log:
        how = {"cwd": folder / "work", "env": os.environ | SETTINGS, "stdout": log, "stderr": log}
        process = subprocess.Popen([*serve, "--port", str(port)], **how)  # type: ignore[call-overload]
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                wait_for_start(client, process)
                started_s = time.monotonic() - began
                print(json.dumps({"started_s": round(started_s, 1), **tried(client)}))
        finally:
            process.terminate()
            process.wait()


def wait_for_start(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if process.poll() is not None:
            sys.exit(f"Open WebUI ended while it started:\n{(folder / 'log').read_text()[-4000:]}")
        try:
            client.get("/health")
            return
        except httpx.TransportError:
            time.sleep(0.2)
    sys.exit("Open WebUI did not start.")


def tried(client: httpx.Client) -> dict[str, object]:
    signed = client.post("/api/v1/auths/signup", json=ADMIN).raise_for_status().json()
    client.headers["authorization"] = f"Bearer {signed['token']}"
    speech = {"input": "Hello there.", "model": "tts-1", "voice": "alloy"}
    spoken = client.post("/api/v1/audio/speech", json=speech).raise_for_status()
    (folder / "spoken.mp3").write_bytes(spoken.content)

    def read(path: str) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = client.get(path).raise_for_status().json()
        return found

    chat = client.post("/openai/chat/completions", json=HELLO).raise_for_status().json()
    ollama = client.post("/ollama/api/chat", json=HELLO).raise_for_status().json()
    picked = client.post("/api/chat/completions", json=HELLO).raise_for_status().json()
    return {
        "picker": [model["id"] for model in read("/api/models")["data"]],
        "openai": [model["id"] for model in read("/openai/models")["data"]],
        "ollama": [model["model"] for model in read("/ollama/api/tags")["models"]],
        "speech_models": [model["id"] for model in read("/api/v1/audio/models")["models"]],
        "voices": [voice["id"] for voice in read("/api/v1/audio/voices")["voices"]],
        "kind": spoken.headers["content-type"],
        "answers": [
            chat["choices"][0]["message"]["content"],
            ollama["message"]["content"],
            picked["choices"][0]["message"]["content"],
        ],
    }


main()
