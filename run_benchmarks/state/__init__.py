"""State of one run: its journal, its lock, interruptions, and what its rounds share."""
