"""Settings of a training."""
