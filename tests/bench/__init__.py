"""Benchmarks: they print ratios against a named rival in the same run and are never judged by CI."""
