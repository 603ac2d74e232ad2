# all_reduce over the usual range of nccl-tests, 8 B to 16 GiB.
extends = "config_full_range"
serves = [
    "config_A100x1x1",
    "config_A100x1x8",
    "config_A100x2x8",
    "config_H100x1x1",
    "config_H100x1x8",
    "config_H100x2x8",
    "config_H200x1x1",
    "config_H200x1x8",
    "config_H200x2x8",
]
