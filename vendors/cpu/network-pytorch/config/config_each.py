# Each host alone, all in parallel: NVLink, PCIe and memory of one host against the others'.
extends = "config_each"
sizes = "8, 4M"
warmup_iterations = 1
iterations = 5
