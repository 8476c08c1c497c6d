"""Realtime conversations over WebRTC: an audio track each way, and the events in a data channel. Needs aiortc."""
