"""Benchmark `cpm`: CPM pretraining."""
