"""The data of a training: sets of samples, their shards, order and identity."""
