"""Datasheets: a device is found by the name that torch gives it, its figures are dense, and no other name has any."""

import pytest

from training.benchmarks.driver.training.measuring.rates import peak_of
from training.benchmarks.llama.pytorch.config import Config
from vendors.datasheets import datasheet, datasheets

TYPES = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"}
# Name from torch, row, and the document's bf16, fp8, int8 (1e12/s), bandwidth (1e9 bytes/s), capacity (GB).
KNOWN: list[tuple[str, str, float | None, float | None, float | None, float, float]] = [
    ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB", None, None, None, 900, 16),
    ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB", None, None, None, 900, 32),
    ("Tesla V100-PCIE-16GB", "V100 PCIe 16GB", None, None, None, 900, 16),
    ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB", None, None, None, 900, 32),
    ("Tesla V100S-PCIE-32GB", "V100S PCIe", None, None, None, 1134, 32),
    ("A100-SXM4-40GB", "A100 SXM 40GB", 312.0, None, 624.0, 1555, 40),
    ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB", 312.0, None, 624.0, 1555, 40),
    ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB", 312.0, None, 624.0, 1555, 40),
    ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB", 312.0, None, 624.0, 2039, 80),
    ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 312.0, None, 624.0, 1935, 80),
    ("NVIDIA A800-SXM4-80GB", "A800 SXM 80GB", 312.0, None, 624.0, 2039, 80),
    ("NVIDIA A800 80GB PCIe", "A800 PCIe 80GB", 312.0, None, 624.0, 1935, 80),
    ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4, 1978.9, 1978.9, 3350, 80),
    ("NVIDIA H100 PCIe", "H100 PCIe", 756.0, 1513.0, 1513.0, 2000, 80),
    ("NVIDIA H100 NVL", "H100 NVL", 835.5, 1671.0, 1671.0, 3900, 94),
    ("NVIDIA H200", "H200 SXM", 989.4, 1978.9, 1978.9, 4800, 141),
    ("NVIDIA H200 NVL", "H200 NVL", 835.5, 1671.0, 1671.0, 4800, 141),
    ("NVIDIA H800", "H800 SXM", 989.4, 1978.9, 1978.9, 3350, 80),
    ("NVIDIA H800 PCIe", "H800 PCIe", 756.0, 1513.0, 1513.0, 2000, 80),
    ("NVIDIA H20", "H20", 148.0, 296.0, 296.0, 4000, 96),
    ("NVIDIA GH200 480GB", "GH200 96GB", 989.4, 1978.9, 1978.9, 4000, 96),
    ("NVIDIA GH200 144G HBM3e", "GH200 144GB", 989.4, 1978.9, 1978.9, 4900, 144),
    ("NVIDIA B200", "B200", 2250.0, 4500.0, 4500.0, 8000, 180),
    ("NVIDIA GB200", "GB200", 2500.0, 5000.0, 5000.0, 8000, 186),
    ("NVIDIA L40S", "L40S", 362.05, 733.0, 733.0, 864, 48),
    ("AMD Instinct MI250X", "MI250X", 191.5, None, 191.5, 1638.4, 64),
    ("AMD Instinct MI300X", "MI300X", 1307.4, 2614.9, 2614.9, 5300, 192),
    ("AMD Instinct MI325X", "MI325X", 1307.4, 2614.9, 2614.9, 6000, 256),
    ("AMD Instinct MI350X", "MI350X", 2306.9, 4613.7, 4613.7, 8000, 288),
    ("AMD Instinct MI355X", "MI355X", 2516.6, 5033.2, 5033.2, 8000, 288),
    ("Ascend910B3", "910B3", 313.0, None, None, 1600, 64),
    ("MLU370-X8", "MLU370-X8", 48.0, None, 128.0, 307.2, 24),
    ("Iluvatar BI-V100", "BI-V100", 147.0, None, 295.0, 1200, 32),
    ("MTT S4000", "MTT S4000", 100.0, None, 200.0, 768, 48),
]


@pytest.mark.parametrize(("name", "row", "bf16", "fp8", "int8", "memory", "capacity"), KNOWN)
def test_a_device_is_known_by_its_name(
    name: str, row: str, bf16: float | None, fp8: float | None, int8: float | None, memory: float, capacity: float
) -> None:
    found = datasheet(name)
    assert found is not None
    assert (found.name, found.memory_GBps, found.memory_GiB) == (row, memory, capacity)
    assert tuple(found.tflops.get(type_) for type_ in ("bf16", "fp8", "int8")) == (bf16, fp8, int8)
    assert found.memory_bytes == capacity * 2**30


def test_every_row_has_a_name_a_source_and_rates_of_known_types() -> None:
    rows = datasheets()
    assert {sheet.name for sheet in rows} == {row for _, row, *_ in KNOWN}
    assert len({sheet.name for sheet in rows}) == len(rows)
    for sheet in rows:
        assert "https://" in sheet.source, sheet.name
        assert {"fp16"} <= sheet.tflops.keys() <= TYPES, sheet.name
        # Half the width of a type doubles its rate; figures with sparsity would be four times that of twice the width.
        for wide, narrow in (("tf32", "bf16"), ("bf16", "int8"), ("bf16", "fp8")):
            # CDNA 2 computes int8 as fast as bf16, the MLU370 8/3 times as fast.
            if {wide, narrow} <= sheet.tflops.keys() and sheet.name not in ("MI250X", "MLU370-X8"):
                assert sheet.tflops[narrow] / sheet.tflops[wide] == pytest.approx(2, rel=0.02), (sheet.name, narrow)


def test_the_variants_for_export_have_their_own_figures() -> None:
    sheets = {sheet.name: sheet for sheet in datasheets()}
    assert (sheets["H800 SXM"].tflops["fp64"], sheets["H100 SXM"].tflops["fp64"]) == (1.0, 66.9)
    assert (sheets["H800 SXM"].peer_link_GBps, sheets["H100 SXM"].peer_link_GBps) == (200, 450)
    assert (sheets["A800 SXM 80GB"].peer_link_GBps, sheets["A100 SXM 80GB"].peer_link_GBps) == (200, 300)
    assert sheets["H20"].tflops["fp64"] == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "Tesla T4", "NVIDIA A100-SXM-64GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "GRID A100-40C", "NVIDIA A100X", "NVIDIA A800 40GB Active", "NVIDIA H800 NVL", "NVIDIA H20-3e", "NVIDIA H100",
        "NVIDIA B200A", "NVIDIA B300 SXM6 AC", "NVIDIA L40", "NVIDIA L4", "Tesla V100-SXM3-32GB",
        "Tesla V100-DGXS-32GB", "AMD Instinct MI300A", "AMD Instinct MI300X VF", "AMD Instinct MI308X",
        "NVIDIA Graphics Device", "", "H",
    ],
)  # fmt: skip
def test_an_unknown_device_or_a_part_of_one_has_no_datasheet(name: str) -> None:
    assert datasheet(name) is None


def test_case_and_space_of_a_name_do_not_matter() -> None:
    assert datasheet(" nvidia  h100 pcie ") == datasheet("NVIDIA H100 PCIe") != datasheet("NVIDIA H100 NVL")


def test_the_peak_for_mfu_is_that_of_the_precision_or_unknown() -> None:
    def peak(name: str | None, **settings: object) -> float | None:
        return peak_of(Config.model_validate({"max_steps": 1, "data": "synthetic", **settings}), name)

    assert peak("NVIDIA H800", precision="bf16") == 989.4
    assert peak("NVIDIA H800", precision="fp32") == 494.7
    assert peak("NVIDIA H800", precision="fp32", tf32=False) == 66.9
    assert peak("Tesla V100-SXM2-32GB", precision="fp16") == 125.0
    assert peak("Tesla V100-SXM2-32GB", precision="fp32") == 15.7, "it has no TF32"
    assert peak("Tesla V100-SXM2-32GB", precision="bf16") is None, "and no units for bf16"
    assert peak("AMD Instinct MI300X", precision="fp32") == 163.4, "torch computes no product in its TF32"
    assert peak("NVIDIA H20-3e", precision="bf16") is None
    assert peak(None, precision="bf16") is None
    assert peak("NVIDIA H20-3e", precision="bf16", peak_tflops=148.0) == 148.0


@pytest.mark.parametrize(
    ("name", "units", "clock_ghz", "per_unit"),
    [
        ("AMD Instinct MI250X", 110, 1.7, {"fp64": 256, "fp32": 256, "bf16": 1024, "int8": 1024}),
        ("AMD Instinct MI300X", 304, 2.1, {"fp64": 256, "fp32": 256, "bf16": 2048, "fp8": 4096}),
        ("AMD Instinct MI325X", 304, 2.1, {"fp64": 256, "fp32": 256, "bf16": 2048, "fp8": 4096}),
        ("AMD Instinct MI350X", 256, 2.2, {"fp64": 128, "fp32": 256, "bf16": 4096, "fp8": 8192}),
        ("AMD Instinct MI355X", 256, 2.4, {"fp64": 128, "fp32": 256, "bf16": 4096, "fp8": 8192}),
    ],
)
def test_the_rates_are_those_of_the_compute_units(
    name: str, units: int, clock_ghz: float, per_unit: dict[str, int]
) -> None:
    """Units of a device, their clock, and the operations of each in a cycle, by the papers on CDNA 2, 3 and 4."""
    sheet = datasheet(name)
    assert sheet is not None
    for type_, operations in per_unit.items():
        assert sheet.tflops[type_] == pytest.approx(units * clock_ghz * operations / 1e3, rel=1e-3), type_
