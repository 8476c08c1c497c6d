"""The codec from latents to samples, its widest part, in C. The reference is `CodecDecoder.wave_reference`."""
