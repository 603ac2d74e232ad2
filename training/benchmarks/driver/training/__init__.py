"""The trainer that all training benchmarks share."""
