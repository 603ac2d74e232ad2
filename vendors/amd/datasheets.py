"""Datasheets of AMD's Instinct accelerators. fp64 and fp32 are the rates of the matrix cores."""

from vendors.datasheet import Rates, matrix_rates, row

_MI300X = (
    "AMD Instinct MI300X accelerator data sheet, https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/"
    "data-sheets/amd-instinct-mi300x-data-sheet.pdf"
)

_PAGE = "AMD's product page, https://www.amd.com/en/products/accelerators/instinct/"
_MI250X = f"{_PAGE}mi200/mi250x.html; half of it: each of its two dies is a device"
_MI325X, _MI350X, _MI355X = (f"{_PAGE}{name}.html" for name in ("mi300/mi325x", "mi350/mi350x", "mi350/mi355x"))
_MI250X_RATES = {"fp64": 47.9, "fp32": 47.9, "bf16": 191.5, "fp16": 191.5, "int8": 191.5}
_MI300_RATES = matrix_rates(163.4, 163.4, None, 1307.4, 2614.9)


def _mi350(fp64: float, fp32: float, bf16: float, fp8: float) -> Rates:
    return {"fp64": fp64, "fp32": fp32, "bf16": bf16, "fp16": bf16, "fp8": fp8, "int8": fp8}


# A pair of devices has one of the seven links of Infinity Fabric.
DATASHEETS = (
    row("MI250X", _MI250X, _MI250X_RATES, (1638.4, 64), (32, None), "AMD Instinct MI250X"),
    row("MI300X", _MI300X, _MI300_RATES, (5300, 192), (64, 64), "AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
    row("MI325X", _MI325X, _MI300_RATES, (6000, 256), (64, 64), "AMD Instinct MI325X"),
    row("MI350X", _MI350X, _mi350(72.1, 144.2, 2306.9, 4613.7), (8000, 288), (64, 76.8), "AMD Instinct MI350X"),
    row("MI355X", _MI355X, _mi350(78.6, 157.3, 2516.6, 5033.2), (8000, 288), (64, 76.8), "AMD Instinct MI355X"),
)
