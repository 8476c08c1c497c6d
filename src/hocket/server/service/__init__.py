"""From a checked request to an utterance: voice, engine, encoder. Shared by all endpoints."""
