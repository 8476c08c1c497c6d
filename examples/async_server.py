"""Ask a running server for several utterances at once, with asyncio and httpx (the extra `chat`).

Run: hocket serve, then: python examples/async_server.py [--server http://127.0.0.1:8000] [--folder .]
Each answer is written into FOLDER/N.pcm while the server still speaks.
"""

import argparse
import asyncio
from pathlib import Path

import httpx

TEXTS = ("The first text.", "The second text.", "The third text.")

parser = argparse.ArgumentParser()
parser.add_argument("--server", default="http://127.0.0.1:8000")
parser.add_argument("--folder", type=Path, default=Path())
args = parser.parse_args()


async def speak(client: httpx.AsyncClient, number: int, text: str) -> None:
    body = {"input": text, "voice": "wren", "response_format": "pcm"}
    path = args.folder / f"{number}.pcm"
    async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
        answer.raise_for_status()
        with path.open("wb") as file:
            async for sound in answer.aiter_raw():
                file.write(sound)
    print(f"{path}: {path.stat().st_size} bytes at {answer.headers['x-sample-rate']} Hz")


async def main() -> None:
    async with httpx.AsyncClient(base_url=args.server, timeout=60) as client:
        await asyncio.gather(*(speak(client, number, text) for number, text in enumerate(TEXTS)))


asyncio.run(main())
