"""Datasheet of Moore Threads' MTT S4000."""

from vendors.datasheet import row

_S4000 = (
    "Moore Threads' announcement of the MTT S4000, 19 December 2023, https://www.mthreads.com; MTLink has 240 GB/s"
    " in both directions"
)
_RATES = {"fp32": 25.0, "bf16": 100.0, "fp16": 100.0, "int8": 200.0}
DATASHEETS = (row("MTT S4000", _S4000, _RATES, (768, 48), (64, 120), "MTT S4000"),)
