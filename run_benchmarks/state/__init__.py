"""What one run keeps of itself: its journal, its lock, how it is interrupted, what its rounds share."""
