"""Its halves."""
