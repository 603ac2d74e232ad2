"""Simulates a job's network flow by flow: between two events every flow has its max-min fair rate."""
