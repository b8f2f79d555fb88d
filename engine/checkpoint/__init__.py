"""Original safetensors directories: read lazily, checked completely, never executed."""
