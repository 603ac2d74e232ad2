# The latency of a barrier.
extends = "config_barrier"
iterations = 500
