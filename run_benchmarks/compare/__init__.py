"""Compares runs: which metric became better or worse, and how sure that is."""
