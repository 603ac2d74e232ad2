"""Benchmarks, each in a folder <model>/<framework> with a config.py, and the driver that they share."""
