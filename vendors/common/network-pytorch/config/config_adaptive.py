# The bad hosts in few rounds: batches, their halves, suspects with good hosts; all_to_all uses every path of a group.
collective = "all_to_all"
pattern = "adaptive"
repeats = 3
sizes = "64K, 1G"
warmup_iterations = 5
iterations = 20
