"""Datasheet of Huawei's Ascend 910B3, as npu-smi and torch_npu name it."""

from vendors.datasheet import row

_910B3 = (
    "Huawei publishes no document; 313 and 78.3 TFLOPS, 64 GB and 1.6 TB/s in Huawei's forum of developers,"
    " https://jdc.huawei.com/jdc/refactor/viewthread?tid=1175654"
)
DATASHEETS = (
    row(
        "910B3", _910B3, {"fp32": 78.3, "bf16": 313.0, "fp16": 313.0}, (1600, 64), (None, None), "910B3", "Ascend910B3"
    ),
)
