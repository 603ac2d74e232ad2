# Device tests on H100 and H200, hosts of eight GPUs.
serves = ["config_H100x2x8", "config_H200x1x8", "config_H200x2x8"]
extends = "config_datasheet"
tests = ["matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "matmul_fp8", "matmul_int8"]
tests += ["matmul_sustained", "memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host"]
tests += ["peer"]
