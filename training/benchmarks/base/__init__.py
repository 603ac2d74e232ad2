"""Benchmark `base`: compute throughput and memory bandwidth of single devices."""
