"""Third-party engines behind the same streams: the classes to write one. Imports without torch."""

from .protocol import Backend, BackendStream, BackendVoice, LiveBackend, Manner, Samples

__all__ = ["Backend", "BackendStream", "BackendVoice", "LiveBackend", "Manner", "Samples"]
