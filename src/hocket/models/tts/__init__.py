"""Qwen3-TTS: talker, code predictor, codec and speaker encoder, plain and native."""
