# all_reduce over the usual range of nccl-tests, 8 B to 16 GiB.
extends = "config_full_range"
serves = [
    "config_MI250Xx1x1",
    "config_MI250Xx1x8",
    "config_MI300Xx1x1",
    "config_MI300Xx1x8",
    "config_MI325Xx1x1",
    "config_MI325Xx1x8",
    "config_MI350Xx1x1",
    "config_MI350Xx1x8",
    "config_MI355Xx1x1",
    "config_MI355Xx1x8",
]
