# all_reduce over the usual range of nccl-tests, 8 B to 16 GiB.
extends = "config_full_range"
serves = ["config_910Bx1x1", "config_910Bx1x8", "config_910Bx2x8"]
