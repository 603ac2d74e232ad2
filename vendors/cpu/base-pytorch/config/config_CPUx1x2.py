# One CPU host, two ranks: what each of them gets out of the processor and the memory that they share.
tests = ["matmul_fp64", "matmul_fp32", "matmul_int8", "memory", "memory_capacity"]
tests += ["host_to_device", "host_to_device_numa", "device_to_host"]
matmul_size = 512
copy_bytes = 64 << 20
warmup_iterations = 2
iterations = 10
