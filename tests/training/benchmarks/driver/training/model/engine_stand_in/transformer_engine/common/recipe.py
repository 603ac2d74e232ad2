"""Recipes of FP8."""


class Float8CurrentScaling:
    """A scale for each tensor, of its own largest element; E4M3 forward, E5M2 backward."""
