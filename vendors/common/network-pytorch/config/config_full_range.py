# all_reduce over the usual range of nccl-tests, 8 B to 16 GiB.
sizes = "8..16G x2"
