# Device tests on A100, hosts of eight GPUs.
serves = ["config_A100x2x8"]
extends = "config_datasheet"
tests = ["matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "matmul_int8"]
tests += ["matmul_sustained", "memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host"]
tests += ["peer"]
