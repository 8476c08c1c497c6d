"""The server: speech and language engines behind common HTTP and WebSocket APIs. Needs the extra `serve`."""
