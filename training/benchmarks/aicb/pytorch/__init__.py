"""Runs AICB workloads on a real process group, times every operation and checks the data."""
