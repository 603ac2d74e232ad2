"""Executes AICB workloads on a cluster, measures their parts, and runs their commands."""
