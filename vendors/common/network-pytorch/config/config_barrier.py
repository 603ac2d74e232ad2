# The latency of a barrier.
collective = "barrier"
warmup_iterations = 10
iterations = 1000
