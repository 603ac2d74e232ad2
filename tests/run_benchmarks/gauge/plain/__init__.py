"""The benchmark with both halves."""
