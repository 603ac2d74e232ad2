"""A training that needs no torch and that may lie, as a folder of training/benchmarks/: see test_derivation."""
