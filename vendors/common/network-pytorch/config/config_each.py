# Each host alone, all in parallel: NVLink, PCIe and memory of one host against the others'.
collective = "all_reduce"
pattern = "each"
repeats = 3
sizes = "8, 1G"
warmup_iterations = 5
iterations = 20
