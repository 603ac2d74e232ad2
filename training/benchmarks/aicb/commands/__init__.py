"""Commands of an executed workload."""
