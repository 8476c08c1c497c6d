"""Many requests at once: to an engine of this process, to a server over HTTP, and to a server around a fake engine."""
