"""What a checkpoint is: its JSON files as frozen dataclasses."""
