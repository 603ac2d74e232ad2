"""Benchmark `mixtral`: Mixtral pretraining, LLaMA with a mixture of experts in each layer."""
