"""Makes calls of a rank's work: its stage's rows as calls, who waits for what, and the memory that they need."""
