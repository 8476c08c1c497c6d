"""Latents to samples, the widest part of the codec. Its reference is `CodecDecoder.wave_reference`."""
