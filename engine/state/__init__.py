"""Saved conversation state: sealed segments of the KV cache, on disk, keyed by model and content."""
