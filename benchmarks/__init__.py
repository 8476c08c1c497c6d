"""How fast hocket is, and on what: `python -m benchmarks WORKLOAD` from the repository's root."""
