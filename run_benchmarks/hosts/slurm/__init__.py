"""Hosts of a Slurm cluster: an allocation, the state of its job, and the steps that reach its nodes."""
