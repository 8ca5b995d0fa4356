"""Benchmarks: `make bench` runs them, `python -m benchmarks.results` writes RESULTS.md from what they measured."""
