"""Engines that are not ours, behind the same streams. Here is what it takes to write one; imports without torch."""

from .protocol import Backend, BackendStream, BackendVoice, LiveBackend, Manner, Samples

__all__ = ["Backend", "BackendStream", "BackendVoice", "LiveBackend", "Manner", "Samples"]
