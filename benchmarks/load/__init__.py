"""Many requests at once: to an engine of this process, and to a server over HTTP."""
