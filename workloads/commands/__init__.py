"""Verbs of `python -m workloads` that generate, show and analyse; other verbs stand in the room of their subject."""
