# Device tests on one device, MI250X to MI355X.
serves = ["config_MI250Xx1x1", "config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
extends = "config_MI300Xx1x8"
tests = ["matmul_fp64", "matmul_fp32", "matmul_bf16", "matmul_fp16", "matmul_int8"]
tests += ["memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host"]
max_percent_below_best = None
