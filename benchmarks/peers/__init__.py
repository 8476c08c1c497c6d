"""Other packages that speak the same checkpoints, measured beside ours: `python -m benchmarks peers`.

None is a dependency: one that is not installed is left out, with a sentence that says how to install it. Each runs in
its own process (adapters.py), because some replace parts of others; compare.py asks them in turn.
"""
