"""Keeps every run in a database, and says where the level of a metric changed over the runs."""
