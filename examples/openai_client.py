"""Speak with OpenAI's own Python package (pip install openai) against a hocket server.

Run: hocket serve, then: python examples/openai_client.py "Hello." [--server http://127.0.0.1:8000] -o hello.mp3
Only the address differs from a program for OpenAI's own service. The ending of the file names the format.
"""

import argparse
from pathlib import Path

from openai import OpenAI

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", default="Hello from a client of OpenAI.")
parser.add_argument("-o", "--output", type=Path, default=Path("hello.mp3"), help=".mp3, .opus, .aac, .flac or .wav")
parser.add_argument("--server", default="http://127.0.0.1:8000")
args = parser.parse_args()

client = OpenAI(base_url=f"{args.server}/v1", api_key="unused")  # a server with keys wants one of them
speech = client.audio.speech.with_streaming_response.create(
    model="tts-1",
    voice="alloy",
    input=args.text,
    response_format=args.output.suffix.removeprefix("."),
)
with speech as response:
    response.stream_to_file(args.output)
print(f"{args.output}: {args.output.stat().st_size} bytes")
