"""The two configuration files that a user edits."""
