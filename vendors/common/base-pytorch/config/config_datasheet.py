# Every test of a GPU against its datasheet; a GPU far below it, or below the best GPU of the run, is bad.
# The limits are low enough for every sound device: docs/reference/training-benchmarks.md gives the reasons.
tests = ["matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "matmul_int8"]
tests += ["matmul_sustained", "memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host"]
warmup_iterations = 10
iterations = 50
min_percent = {"matmul_tf32": 50.0, "matmul_bf16": 50.0, "matmul_fp16": 50.0, "memory": 70.0, "memory_capacity": 85.0}
max_percent_below_best = 10.0
