"""Datasheets of NVIDIA's GPUs."""

from vendors.datasheet import Rates, matrix_rates, row

_V100 = (
    "NVIDIA V100 Tensor Core GPU datasheet, 1165301-r5,"
    " https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_A100 = (
    "NVIDIA A100 Tensor Core GPU datasheet, 1758950-r4, https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/"
    "a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_A800 = (
    "NVIDIA A800: an A100 whose NVLink has 400 GB/s, so Lenovo, ThinkSystem NVIDIA A800 PCIe 4.0 GPU (LP1813),"
    f" https://lenovopress.lenovo.com/lp1813; rates: {_A100}"
)
_HOPPER = (
    "NVIDIA H100 Tensor Core GPU Architecture (whitepaper), table of peak rates,"
    " https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
)
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, https://www.nvidia.com/en-us/data-center/h200/"
_H800 = (
    "NVIDIA H800: an H100 with less fp64 and NVLink of 400 GB/s, so Lenovo, ThinkSystem NVIDIA H800 PCIe Gen5 GPU"
    f" (LP1814), https://lenovopress.lenovo.com/lp1814-thinksystem-nvidia-h800-pcie-gen5-gpu; other rates: {_HOPPER}"
)
_H20 = (
    "NVIDIA publishes no document; table of the HGX H20 in SemiAnalysis, 9 November 2023,"
    " https://www.semianalysis.com/p/nvidias-new-china-ai-chips-circumvent"
)
_GH200 = (
    "NVIDIA GH200 Grace Hopper Superchip datasheet, https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip;"
    f" rates to 4 digits: {_HOPPER}"
)
_B200 = (
    "NVIDIA HGX platform, HGX B200, an eighth of the board's figures, https://www.nvidia.com/en-us/data-center/hgx/;"
    " memory: DGX B200 datasheet, https://resources.nvidia.com/en-us-dgx-systems/dgx-b200-datasheet"
)
_GB200 = (
    "NVIDIA GB200 NVL72, half of the superchip's figures, preliminary, https://www.nvidia.com/en-us/data-center/"
    "gb200-nvl72/"
)
_L40S = "NVIDIA L40S datasheet, https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"

_VOLTA_SXM: Rates = {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}
_VOLTA_PCIE: Rates = {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0}
_VOLTA_S: Rates = {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0}
_AMPERE: Rates = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_ADA: Rates = {"fp32": 91.6, "tf32": 183.0, "bf16": 362.05, "fp16": 362.05, "fp8": 733.0, "int8": 733.0}


_HOPPER_SXM = matrix_rates(66.9, 66.9, 494.7, 989.4, 1978.9)
_HOPPER_PCIE = matrix_rates(51.2, 51.2, 378.0, 756.0, 1513.0)
_HOPPER_NVL = matrix_rates(60.0, 60.0, 417.5, 835.5, 1671.0)
_H800_SXM = {**_HOPPER_SXM, "fp64": 1.0}
_H800_PCIE = {**_HOPPER_PCIE, "fp64": 0.8}
_H20_RATES = matrix_rates(1.0, 44.0, 74.0, 148.0, 296.0)
_B200_RATES = matrix_rates(37.0, 75.0, 1125.0, 2250.0, 4500.0)
_GB200_RATES = matrix_rates(40.0, 80.0, 1250.0, 2500.0, 5000.0)

_SXM, _PCIE = f"{_H100}; rates to 4 digits: {_HOPPER}", (64.0, None)
# Names as the drivers write them; those before 470 leave "NVIDIA " out. A name that is not here has no datasheet: parts
# of a device (MIG, vGPU), other boards and other memories have other peaks.
DATASHEETS = (
    row("V100 SXM2 16GB", _V100, _VOLTA_SXM, (900, 16), (16, None), "Tesla V100-SXM2-16GB"),
    row("V100 SXM2 32GB", _V100, _VOLTA_SXM, (900, 32), (16, None), "Tesla V100-SXM2-32GB"),
    row("V100 PCIe 16GB", _V100, _VOLTA_PCIE, (900, 16), (16, None), "Tesla V100-PCIE-16GB"),
    row("V100 PCIe 32GB", _V100, _VOLTA_PCIE, (900, 32), (16, None), "Tesla V100-PCIE-32GB"),
    row("V100S PCIe", _V100, _VOLTA_S, (1134, 32), (16, None), "Tesla V100S-PCIE-32GB"),
    row("A100 SXM 40GB", _A100, _AMPERE, (1555, 40), (32, 300), "A100-SXM4-40GB"),
    row("A100 PCIe 40GB", _A100, _AMPERE, (1555, 40), (32, None), "A100-PCIE-40GB"),
    row("A100 SXM 80GB", _A100, _AMPERE, (2039, 80), (32, 300), "A100-SXM4-80GB", "A100-SXM-80GB"),
    row("A100 PCIe 80GB", _A100, _AMPERE, (1935, 80), (32, None), "A100 80GB PCIe", "A100-PCIE-80GB"),
    row("A800 SXM 80GB", _A800, _AMPERE, (2039, 80), (32, 200), "A800-SXM4-80GB"),
    row("A800 PCIe 80GB", _A800, _AMPERE, (1935, 80), (32, None), "A800 80GB PCIe"),
    row("H100 SXM", _SXM, _HOPPER_SXM, (3350, 80), (64, 450), "H100 80GB HBM3"),
    row("H100 PCIe", _HOPPER, _HOPPER_PCIE, (2000, 80), _PCIE, "H100 PCIe"),
    row("H100 NVL", _H100, _HOPPER_NVL, (3900, 94), _PCIE, "H100 NVL"),
    row("H200 SXM", f"{_H200}; rates to 4 digits: {_HOPPER}", _HOPPER_SXM, (4800, 141), (64, 450), "H200"),
    row("H200 NVL", _H200, _HOPPER_NVL, (4800, 141), _PCIE, "H200 NVL"),
    row("H800 SXM", _H800, _H800_SXM, (3350, 80), (64, 200), "H800"),
    row("H800 PCIe", _H800, _H800_PCIE, (2000, 80), _PCIE, "H800 PCIe"),
    row("H20", _H20, _H20_RATES, (4000, 96), (64, 450), "H20"),
    # One direction of NVLink-C2C, which takes the place of PCIe.
    row("GH200 96GB", _GH200, _HOPPER_SXM, (4000, 96), (450, None), "GH200 480GB", "GH200 120GB"),
    row("GH200 144GB", _GH200, _HOPPER_SXM, (4900, 144), (450, None), "GH200 144G HBM3e"),
    row("B200", _B200, _B200_RATES, (8000, 180), (64, 900), "B200"),
    row("GB200", _GB200, _GB200_RATES, (8000, 186), (None, 900), "GB200"),
    row("L40S", _L40S, _ADA, (864, 48), (32, None), "L40S"),
)
