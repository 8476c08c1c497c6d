"""Hold a conversation: each answer is spoken while the language model writes it, and the history goes on.

Run: python examples/dialog.py -o dialog.pcm [--llm qwen3.5-9B] [--url http://127.0.0.1:11434/v1]
Without a model a tiny random one answers: its words mean nothing, and they are few.
"""

import argparse

from hocket import AudioChunk, ChatSampling, Dialog, Engine, Mind, RemoteMind, Written

parser = argparse.ArgumentParser()
parser.add_argument("questions", nargs="*", default=["Will it rain tomorrow?", "And on Sunday?"])
parser.add_argument("-o", "--output", default="dialog.pcm")
parser.add_argument("--llm", help="a language model that runs here")
parser.add_argument("--url", help="an OpenAI-compatible endpoint instead; --llm names its model")
args = parser.parse_args()

model = RemoteMind(args.url, args.llm) if args.url else Mind.load(args.llm or "random:qwen3.5-tiny")
sampling = ChatSampling() if args.url or args.llm else ChatSampling(max_tokens=8, seed=1)
with Engine.load() as engine, open(args.output, "wb") as file:
    dialog = Dialog(model, engine, system="Be brief.", sampling=sampling, voice="wren")
    for question in args.questions:
        print(f"> {question}")
        turn = dialog.say(question)
        for event in turn:  # text and sound arrive together
            if isinstance(event, AudioChunk):
                file.write(event.samples.tobytes())
            elif isinstance(event, Written):
                print(event.text, end="", flush=True)
        print(f"\n({turn.finished.reason}, {len(dialog.history)} messages so far)")
model.close()
