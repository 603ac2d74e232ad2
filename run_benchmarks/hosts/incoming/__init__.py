"""Checks everything that a host sends: archives, command output, text for the console. None of it is trusted."""
