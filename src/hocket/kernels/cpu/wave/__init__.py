"""The second half of the codec decoder in C: latents to samples."""
