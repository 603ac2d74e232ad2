"""Simulates the network of a job: flows that share links fairly, or packets with ECN, PFC and errors."""
