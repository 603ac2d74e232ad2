"""Benchmark `bert`: BERT pretraining."""
