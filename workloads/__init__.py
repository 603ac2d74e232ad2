"""Describes the work of a job without a GPU: its parameters, rows, formats and analysis."""
