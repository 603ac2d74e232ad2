"""Benchmark `network`: latency and bandwidth of collectives, between devices and between hosts."""
