"""Helpers that know nothing of clusters: whole files, units, statistics, pictures, the root of errors."""
