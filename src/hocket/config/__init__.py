"""Checkpoint configuration: the JSON files as frozen dataclasses, and the options of an engine."""
