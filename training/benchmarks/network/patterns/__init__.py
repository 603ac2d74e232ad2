"""Patterns of a measurement: who measures with whom, over which tiers."""
