"""Reports on an executed workload: its classes of operations, its critical path."""
