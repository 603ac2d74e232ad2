"""The ranks of the benchmark `tools`: one on each host, joined by torch."""
