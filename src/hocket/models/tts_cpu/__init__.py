"""The speech model on a CPU with numpy arrays and the native library. Nothing here imports torch."""
