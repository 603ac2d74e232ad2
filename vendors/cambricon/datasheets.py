"""Datasheet of Cambricon's MLU370-X8."""

from vendors.datasheet import row

_X8 = (
    "Cambricon's announcement of the MLU370-X8, 21 March 2022, https://www.cambricon.com; half of the card: each of"
    " its two chips is a device."
    " fp32 differs between reports"
)
DATASHEETS = (row("MLU370-X8", _X8, {"bf16": 48.0, "fp16": 48.0, "int8": 128.0}, (307.2, 24), (32, None), "MLU370-X8"),)
