# H200, two hosts, eight GPUs each: each GPU's products, memory and host copies against the datasheet.
# The limits are low enough for every sound device.
tests = ["matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "memory"]
tests += ["host_to_device", "device_to_host"]
matmul_size = 8192
copy_bytes = 1 << 30
warmup_iterations = 10
iterations = 50
min_percent = {"matmul_tf32": 50.0, "matmul_bf16": 50.0, "matmul_fp16": 50.0, "memory": 70.0}
max_percent_below_best = 10.0
