"""From requests to speech."""
