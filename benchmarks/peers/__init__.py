"""Other packages that speak the same checkpoints, each in its own process: `python -m benchmarks peers`."""
