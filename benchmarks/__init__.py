"""qacal beside its peers: ``python -m benchmarks.speed`` for time, ``python -m benchmarks.quality`` for quality."""
