"""Datasheets of AMD's Instinct accelerators. fp64 and fp32 are the rates of the matrix cores."""

from vendors.datasheet import matrix_rates, row

_MI300X = (
    "AMD Instinct MI300X accelerator data sheet, https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/"
    "data-sheets/amd-instinct-mi300x-data-sheet.pdf"
)

_MI300X_RATES = matrix_rates(163.4, 163.4, 653.7, 1307.4, 2614.9)

# A pair of devices has one of the seven links of Infinity Fabric.
DATASHEETS = (
    row("MI300X", _MI300X, _MI300X_RATES, (5300, 192), (64, 64), "AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
)
