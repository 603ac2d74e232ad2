"""Runtimes: how the task of a node runs on its host."""
