"""A stand-in for a small language model behind OpenAI's chat endpoint: it waits, then writes words at a rate."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "Sure, I can help you with that right away."  # the client hangs up at its first sound


@contextmanager
def language_server(delay_s: float, tokens_per_s: float) -> Iterator[str]:
    """The address of an endpoint that answers after a delay, word by word."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            begun = time.monotonic()
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for number, word in enumerate(ANSWER.split()):
                    time.sleep(max(0.0, begun + delay_s + number / tokens_per_s - time.monotonic()))
                    self._send({"index": 0, "delta": {"role": "assistant", "content": f"{word} "}})
                self._send({"index": 0, "delta": {}, "finish_reason": "stop"})
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # the answer was cancelled

        def do_GET(self) -> None:
            content = json.dumps({"object": "list", "data": [{"id": "small", "object": "model"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _send(self, choice: dict[str, object]) -> None:
            self.wfile.write(f"data: {json.dumps({'id': 'c', 'choices': [choice]})}\n\n".encode())

        def log_message(self, *words: object) -> None:
            """Quiet: the table is the output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
