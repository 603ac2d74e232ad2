"""A real Slurm cluster on test hosts."""
