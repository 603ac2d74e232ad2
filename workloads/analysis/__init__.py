"""Shows workloads and op logs: summaries, comparisons, pages."""
