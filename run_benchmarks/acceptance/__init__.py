"""Accepts a cluster: rungs of cases with a gate after each; suspects are confirmed before they are listed."""
