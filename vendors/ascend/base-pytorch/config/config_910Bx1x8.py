# Device tests on hosts of eight Ascend 910B.
serves = ["config_910Bx1x1"]
tests = ["matmul_fp32", "matmul_bf16", "matmul_fp16", "memory", "memory_capacity"]
tests += ["host_to_device", "host_to_device_numa", "device_to_host"]
