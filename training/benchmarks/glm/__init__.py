"""Benchmark `glm`: GLM pretraining."""
