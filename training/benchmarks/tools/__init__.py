"""Runs the diagnostic and bandwidth tools of others where they are installed, and judges what they print."""
