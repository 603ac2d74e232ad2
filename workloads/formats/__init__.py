"""One reader and one writer a file format."""

AICB, FULL = FORMS = ("aicb", "full")
"""The forms of a workload CSV: AICB's columns, or all of them."""
