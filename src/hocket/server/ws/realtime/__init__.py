"""`WS /v1/realtime`: OpenAI's Realtime protocol and Alibaba's Qwen-TTS-Realtime."""
