# Device tests on hosts of eight devices, MI250X to MI355X.
serves = ["config_MI250Xx1x8", "config_MI325Xx1x8", "config_MI350Xx1x8", "config_MI355Xx1x8"]
tests = ["matmul_fp64", "matmul_fp32", "matmul_bf16", "matmul_fp16", "matmul_int8"]
tests += ["memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host", "peer"]
max_percent_below_best = 5.0
