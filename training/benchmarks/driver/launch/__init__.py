"""Processes beside the ranks on a host: the launcher, its supervisor, the watch over the ranks."""
