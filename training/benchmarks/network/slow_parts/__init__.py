"""Finds the host or link that is slow."""
