"""Holds the rates of a machine and the factors by which training differs from the bursts that tables measure.

Memory, its rate, TFLOPS and watts are those of aiconfigurator-core 0.12.0 (systems/*.yaml); NVLink's as
simulation.analytical.parts has them. NICs, of a GPU: 200 Gbit/s of A100 (DGX A100: ConnectX-6) and L40S (NVIDIA's
reference architecture 2-8-5-200), 400 Gbit/s (DGX H100, H200 and B200, GB200 NVL72: ConnectX-7), 800 Gbit/s of B300 and
GB300 (ConnectX-8). FP4, dense: NVIDIA's 72 and 105 PFLOPS of 8 GPUs (HGX B200, B300), 720 and 1,080 of 72 (GB200 and
GB300 NVL72).
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).with_name("data")
MEMORY_SHARE = 0.75
"""Of the memory's rate that elementwise kernels reach: on an H200 0.68 (activation), 0.70 (Adam), 0.76 and 0.77
(residual) in kernels of 40 us and more (workloads/compute/tables/h200.csv, held by test_measured.py).
"""
NIC_SHARE = 0.85
"""Of a NIC's rate that NCCL reaches with large messages: for either half of Megatron-Bridge's layouts with experts no
share from 0.5 to 1 predicts better by more than 2 % (test_kernels_held.py).
"""
PRODUCTS, ATTENTION, DISPATCH = "products", "attention", "dispatch"


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times longer than in the tables: products of each precision, attention, the dispatch of experts.

    source: where the products' factors are from. assumed: of a GPU and precision that nobody measured. dispatch:
    between 1.4 and 2.4, which halves of SimuMax's and Megatron-Bridge's layouts show (test_kernels_held.py); on B200
    SimuMax measured kernels that sort tokens at 1.44 times ours, and all-to-alls as long (configs/system/
    b200_bf16_ceperm.json), the rest is no kernel's. burns: how many times longer than in the tables squares of 8,192
    take that `base` keeps running on the machine of the products' factor; H200: 667 TFLOPS, H100 as it.
    """

    products: Mapping[str, float]
    attention: float = 1.0
    dispatch: float = 1.8
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    burns: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU: one-way GB/s of memory, NVLink (L40S: PCIe), NIC; GPUs that NVLink joins, of a server; GiB of memory."""

    gpu: str
    memory_GBps: float  # noqa: N815 - the unit's own spelling
    memory_GiB: float  # noqa: N815
    nvlink_GBps: float  # noqa: N815
    nvlink_domain: int
    server: int
    nic_GBps: float  # noqa: N815
    bf16_TFLOPS: float  # noqa: N815
    fp4_TFLOPS: float  # noqa: N815
    power_W: float  # noqa: N815
    factors: Factors

    def servers_of(self, gpus: int) -> "Machine | None":
        """The machine with `gpus` in a server; None: it cannot be.

        NVLink joins the GPUs of a server, or those of several (GB200 NVL72: trays of 4 in racks of 36 or 72).
        """
        if gpus <= self.server:
            joined = gpus if self.nvlink_domain == self.server else self.nvlink_domain
            return self if gpus == self.server else replace(self, server=gpus, nvlink_domain=joined)
        if self.nvlink_domain > self.server and gpus in (self.nvlink_domain // 2, self.nvlink_domain):
            return replace(self, server=gpus, nvlink_domain=gpus)
        return None

    def on(self, per_server: int, nic_gbps: float) -> "Machine":
        """The machine in servers of `per_server`, each GPU with `nic_gbps` GB/s to other servers."""
        return replace(self, server=per_server, nvlink_domain=per_server, nic_GBps=nic_gbps)

    def limited(self, watts: float, memory_GBps: int) -> "Machine":  # noqa: N803 - the unit's own spelling
        """The machine at a power limit, which is at most the datasheet's, and with another memory; 0: its own.

        Power grows with clock times voltage squared, and voltage with the clock: clocks follow the cube root of the
        power (Chandrakasan et al., IEEE JSSC 27(4), 1992, eq. 1).
        """
        found = replace(self, memory_GBps=memory_GBps) if memory_GBps else self
        watts = min(watts or self.power_W, machines()[self.gpu].power_W)
        if watts == self.power_W:
            return found
        slower = (self.power_W / watts) ** (1 / 3)
        products = {key: factor * slower for key, factor in self.factors.products.items()}
        source = {
            key: f"{text}; at {watts:g} instead of {self.power_W:g} W" for key, text in self.factors.source.items()
        }
        return replace(found, power_W=watts, factors=replace(self.factors, products=products, source=source))

    def rested(self) -> "Machine":
        """The machine after a wait, in which it drew less than its power limit: products run as in bursts."""
        products = {key: min(1.0, factor) for key, factor in self.factors.products.items()}
        return replace(self, factors=replace(self.factors, products=products))

    def peak_tflops(self, precision: str) -> float:
        """The dense peak of tensor cores: in FP8 twice that of BF16."""
        return {"bf16": self.bf16_TFLOPS, "fp8": 2 * self.bf16_TFLOPS, "nvfp4": self.fp4_TFLOPS}[precision]

    def allowed_servers(self) -> str:
        """In words, the numbers of GPUs that `servers_of` takes."""
        racks = "" if self.nvlink_domain == self.server else f", {self.nvlink_domain // 2} or {self.nvlink_domain}"
        return f"1 to {self.server}{racks}"


@cache
def machines() -> Mapping[str, Machine]:
    """Every known GPU by its name, with the factors that are shipped."""
    found: dict[str, Machine] = {}
    for row in _table("machines.csv"):
        gpu = row.pop("gpu")
        rates = {key: float(value) for key, value in row.items()}
        joined, server = int(rates.pop("nvlink_domain")), int(rates.pop("server"))
        found[gpu] = Machine(gpu=gpu, nvlink_domain=joined, server=server, factors=_sustained(gpu), **rates)
    return MappingProxyType(found)


def _sustained(gpu: str) -> Factors:
    products: dict[str, float] = {}
    source: dict[str, str] = {}
    burns: dict[str, float] = {}
    for row in _table("sustained.csv"):
        if row["gpu"] == gpu or (not row["gpu"] and row["precision"] not in products):
            products[row["precision"]] = float(row["factor"])
            source[row["precision"]] = row["source"]
            if row["burn"]:
                burns[row["precision"]] = float(row["burn"])
    return Factors(products, source=source, burns=burns)


def _table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def memory_of_name(name: str) -> int:
    """GB/s of the memory that a GPU's name says instead of the usual one, 0 where it says none.

    HBM2e has 3.2 Gbit/s on 1,024 lines a stack (JEDEC JESD235D), H100 with 96 GB six stacks.
    """
    return round(3.2 * 1024 * 6 / 8) if "HBM2E" in name.upper() and "H100" in name.upper() else 0


def machine_of(name: str) -> Machine | None:
    """The machine of a GPU's name in any spelling: "H100", "h100_sxm", "NVIDIA H100 80GB HBM3"; None: unknown."""
    known = machines()
    for word in _words(name):
        if word in known:
            return known[word]
        # As in h100sxm.
        if (start := word.partition("SXM")[0]) != word and start in known:
            return known[start]
    return None


def other_part(name: str) -> str:
    """A word of a GPU's name that says that it is none of the measured parts, "": there is none.

    Measured are those that NVLink joins (L40S: PCIe), A100 with 80 GB.
    """
    text = " ".join(_words(name))
    others = ["PCIE", "NVL", "MIG"] if "L40S" not in text else []
    sizes = [r"(?!(?:80|640) ?GB?\b)[0-9]+ ?G(?:I?B)?"] if "A100" in text else []
    match = re.search(rf"\b({'|'.join([*others, *sizes])})\b", text) if others or sizes else None
    return match[0] if match else ""


def _words(name: str) -> list[str]:
    return name.upper().replace("-", " ").replace("_", " ").split()
