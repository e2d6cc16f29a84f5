"""Speed and likelihood beside the peers, measured side by side in one run: ``python -m benchmarks.speed``."""
