"""The log of the operations that were executed."""

UNITS = {"GB": 10**9, "GiB": 2**30}
"""Bytes of one unit of bandwidth; the first is the default."""
