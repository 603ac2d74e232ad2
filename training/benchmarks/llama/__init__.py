"""Benchmark `llama`: LLaMA pretraining."""
