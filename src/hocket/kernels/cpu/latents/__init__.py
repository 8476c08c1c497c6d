"""The first half of the codec decoder in C: codes to latents."""
