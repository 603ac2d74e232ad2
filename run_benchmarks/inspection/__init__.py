"""Inspection of hosts before they work: facts, checks, capacity, the code folder."""
