"""A benchmark of one number that its settings choose, as a folder of training/benchmarks/: see test_plug_in."""
