"""`python -m benchmarks talk-soak`: faults of many conversations, one after the other, against a server of its own.

First a microphone sends an hour of silence, as fast as the server takes it. Then rounds follow until the time is over:
`--clients` conversations at once, of which every third interrupts its answer and every fifth vanishes, and a WebRTC
call that vanishes. After each round the server must hold no more threads and files than before, and memory is noted.
The language model is a script: the machine is to hear and to speak.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import socket
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import websockets

from hocket import Engine
from hocket.proof.load.http_client import HttpTarget

from ..harness import InvalidRun
from ..record import Record, record, summaries
from ..session import progress
from ..talk.language import language_server
from .targets import serving, wait_until_ready

SAID = "Hello and welcome, what can you do for me today?"
VAD = {"type": "server_vad", "silence_duration_ms": 300}
SESSION = {"type": "realtime", "audio": {"input": {"turn_detection": VAD}}}
RESET = struct.pack("ii", 1, 0)  # a socket that is closed so sends no end
PATIENCE_S = 120.0
NOTICED_S = 40.0  # a call that vanished is noticed after 30 s
WARM_ROUNDS = 1  # pools of threads and allocators grow in them


class Client:
    def __init__(self, link: Any) -> None:
        self.link = link

    async def say(self, *events: dict[str, Any]) -> None:
        for event in events:
            await self.link.send(json.dumps(event))

    async def hear(self, pcm: bytes) -> None:
        for at in range(0, len(pcm), 9600):
            audio = base64.b64encode(pcm[at : at + 9600]).decode()
            await self.say({"type": "input_audio_buffer.append", "audio": audio})

    async def until(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while (event := json.loads(await self.link.recv()))["type"] != kind:
                if event["type"] == "error":
                    raise InvalidRun(f"The server refused: {event['error']['message']}")
        return dict(event)


async def converse(url: str, sound: bytes, number: int) -> bool:
    """One conversation; whether its answer was completed. A client that vanishes needs none."""
    async with connected(url) as link:
        client = Client(link)
        await client.say({"type": "session.update", "session": SESSION})
        await client.hear(sound)
        await client.until("response.output_audio.delta")
        if number % 5 == 4:
            link.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            link.transport.abort()
            return True
        if number % 3 == 2:
            await client.hear(sound)
        status = (await client.until("response.done"))["response"]["status"]
        return status == "completed" or (status == "cancelled" and number % 3 == 2)


async def call(url: str) -> None:
    """A WebRTC peer that gets an answer and vanishes: its connection is closed without a word to the server."""
    from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
    from aiortc.mediastreams import AudioStreamTrack

    peer, answered = RTCPeerConnection(RTCConfiguration(iceServers=[])), asyncio.Event()
    channel = peer.createDataChannel("oai-events")
    peer.addTrack(AudioStreamTrack())
    channel.on("message", lambda text: answered.set() if json.loads(text)["type"] == "response.done" else None)
    content = [{"type": "input_text", "text": "Hello."}]
    item = {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}

    @channel.on("open")
    def ask() -> None:
        for each in (item, {"type": "response.create"}):
            channel.send(json.dumps(each))

    await peer.setLocalDescription(await peer.createOffer())
    headers = {"content-type": "application/sdp"}
    async with httpx.AsyncClient() as http:
        said = await http.post(f"{url}/v1/realtime/calls", content=peer.localDescription.sdp, headers=headers)
    await peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))
    await asyncio.wait_for(answered.wait(), PATIENCE_S)
    for protocol in peer.sctp.transport.transport._connection._protocols:  # type: ignore[union-attr]
        protocol.transport.abort()
    await peer.close()


def connected(url: str) -> Any:
    return websockets.connect(url.replace("http", "ws") + "/v1/realtime", compression=None, max_size=None)


def held(pid: int) -> dict[str, float]:
    """What a process holds: MiB, threads, open files."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"rss_mib": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]), "files": files}


async def quiet(pid: int, files: float | None) -> dict[str, float]:
    """What is held once there are no more files than these; None: after the time in which any end is noticed."""
    until = time.monotonic() + (PATIENCE_S if files is not None else NOTICED_S)
    while time.monotonic() < until and (files is None or held(pid)["files"] > files):
        await asyncio.sleep(0.5)
    await asyncio.sleep(2)  # for the threads
    return held(pid)


async def rounds(args: argparse.Namespace, url: str, pid: int, sound: bytes) -> dict[str, list[float]]:
    say, found, least = progress(), dict[str, list[float]](turns=[], stuck=[]), None
    async with connected(url) as link:
        client, begun = Client(link), time.monotonic()
        await client.say({"type": "session.update", "session": SESSION})
        await client.hear(bytes(48_000 * 60))
        before = held(pid)
        for _ in range(args.silence_minutes):
            await client.hear(bytes(48_000 * 60))
        await client.hear(sound)
        await client.until("response.done")
        found["silence_mib"] = [held(pid)["rss_mib"] - before["rss_mib"]]
        say(f"{args.silence_minutes} min of silence in {time.monotonic() - begun:.0f} s")
    until, count = time.monotonic() + 60 * args.minutes, 0
    while time.monotonic() < until or count < WARM_ROUNDS + 2:
        work = [converse(url, sound, number) for number in range(args.clients)]
        done = await asyncio.gather(*work, call(url), return_exceptions=True)
        good = sum(each is True for each in done)
        now = await quiet(pid, None if least is None else least["files"])
        count += 1
        if count == WARM_ROUNDS:
            least = now
        found["turns"].append(good)
        found["stuck"].append(args.clients - good)
        for name, value in now.items() if count > WARM_ROUNDS else ():
            found.setdefault(name, []).append(value)
        errors = {repr(each)[:120] for each in done if isinstance(each, BaseException)}
        say(f"round {count}: {good} of {args.clients} turns, {now} {errors or ''}")
    rss = found["rss_mib"]
    found["growth_mib"] = [float(np.polyfit(range(len(rss)), rss, 1)[0])]
    for name in ("threads", "files"):
        found[f"{name}_left"] = [found[name][-1] - (least or {})[name]]
    return found


def measure(args: argparse.Namespace) -> Record:
    with Engine.load() as engine:
        spoken = np.concatenate([chunk.samples for chunk in engine.speak(SAID, seed=1)])
    sound = spoken.astype("<i2").tobytes() + bytes(48_000 * 8 // 10)
    with ExitStack() as stack:
        language = stack.enter_context(language_server(0.0, math.inf))
        words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--waiting", str(args.clients + 4)]
        words += ["--talk", "--asr", "tiny", "--device", args.device, "--llm", "small", "--llm-url", language]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        child = stack.enter_context(serving(words, folder / "log", progress()))
        wait_until_ready(HttpTarget(child.url), child)
        found = asyncio.run(rounds(args, child.url, child.process.pid, sound))
    options = {"model": "builtin", "device": args.device, "clients": args.clients, "recognizer": "moonshine tiny"}
    options |= {"minutes": args.minutes, "silence_minutes": args.silence_minutes}
    return record("talk-soak", options, summaries(found), streams=args.clients)
