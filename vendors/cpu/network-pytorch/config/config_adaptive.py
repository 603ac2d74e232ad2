# The bad hosts in few rounds: batches, their halves, suspects with good hosts; all_to_all uses every path of a group.
extends = "config_adaptive"
sizes = "64K, 4M"
warmup_iterations = 1
