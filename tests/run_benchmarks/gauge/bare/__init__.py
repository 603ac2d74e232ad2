"""The same benchmark without an outcome.py."""
