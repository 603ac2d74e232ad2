"""Commands of run.py."""
