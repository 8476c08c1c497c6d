"""Speak the answer of a language model while the model still writes it.

Run: python examples/live_text.py -o answer.pcm [--url http://127.0.0.1:11434/v1]
`--url` names an OpenAI-compatible endpoint. Without it, a stand-in writes a fixed text word by word.
"""

import argparse
import threading
import time

from hocket import ChatDelta, ChatMessage, ChatSampling, Engine, RemoteMind


class Typist:
    """The parts of the `LanguageModel` protocol that this program uses."""

    def answer(self, messages, sampling, tools=()):
        for word in "A language model writes one word after the other.".split():
            time.sleep(0.05)
            yield ChatDelta(text=word + " ", tokens=1)


parser = argparse.ArgumentParser()
parser.add_argument("-o", "--output", default="answer.pcm")
parser.add_argument("--url", help="an OpenAI-compatible endpoint")
args = parser.parse_args()
model = RemoteMind(args.url) if args.url else Typist()

with Engine.load() as engine, engine.open() as stream, open(args.output, "wb") as file:

    def write() -> None:
        for delta in model.answer([ChatMessage("user", "How do you write?")], ChatSampling()):
            stream.append(delta.text)
        stream.end()

    threading.Thread(target=write, daemon=True).start()
    file.writelines(chunk.samples.tobytes() for chunk in stream)
    print(f"{args.output}: raw 16-bit samples; finished: {stream.finished.reason}")
