"""Holds the rates of a machine and the factors by which training differs from the bursts that tables measure.

Rates are those of aiconfigurator-core 0.12.0 (systems/*.yaml); NVLink's as simulation.analytical.parts has them. NICs:
400 Gbit/s a GPU, 800 Gbit/s for B300 and GB300 (ConnectX-8), 200 Gbit/s for A100 and L40S.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).with_name("data")
MEMORY_SHARE = 0.75
"""Of the memory's rate that elementwise kernels reach."""
NIC_SHARE = 0.85
"""Of a NIC's rate that NCCL reaches with large messages."""
PRODUCTS, ATTENTION, DISPATCH = "products", "attention", "dispatch"


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times longer than in the tables: products of each precision, attention, the dispatch of experts.

    source: where the products' factors are from. assumed: of a GPU and precision that nobody measured.
    """

    products: Mapping[str, float]
    attention: float = 1.0
    dispatch: float = 1.8
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU: GB/s of its memory, NVLink (L40S: PCIe) and NIC in one direction, GPUs that NVLink joins, of a server,
    GiB of memory.
    """

    gpu: str
    memory_GBps: float  # noqa: N815 - the unit's own spelling
    memory_GiB: float  # noqa: N815
    nvlink_GBps: float  # noqa: N815
    nvlink_domain: int
    server: int
    nic_GBps: float  # noqa: N815
    bf16_TFLOPS: float  # noqa: N815
    power_W: float  # noqa: N815
    factors: Factors

    def servers_of(self, gpus: int) -> "Machine | None":
        """The machine with `gpus` in a server; None: it cannot be.

        NVLink joins the GPUs of a server, or those of several (GB200 NVL72: trays of 4 in racks of 36 or 72).
        """
        if gpus <= self.server:
            joined = gpus if self.nvlink_domain == self.server else self.nvlink_domain
            return replace(self, server=gpus, nvlink_domain=joined)
        if self.nvlink_domain > self.server and gpus in (self.nvlink_domain // 2, self.nvlink_domain):
            return replace(self, server=gpus, nvlink_domain=gpus)
        return None

    def on(self, per_server: int, nic_gbps: float) -> "Machine":
        """The machine in servers of `per_server`, each GPU with `nic_gbps` GB/s to other servers."""
        return replace(self, server=per_server, nvlink_domain=per_server, nic_GBps=nic_gbps)

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
    for row in _table("sustained.csv"):
        if row["gpu"] == gpu or (not row["gpu"] and row["precision"] not in products):
            products[row["precision"]] = float(row["factor"])
            source[row["precision"]] = row["source"]
    return Factors(products, source=source)


def _table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def machine_of(name: str) -> Machine | None:
    """The machine of a GPU's name in any spelling: "H100", "h100_sxm", "NVIDIA H100 80GB HBM3"; None: unknown."""
    words = name.upper().replace("-", " ").replace("_", " ").split()
    known = machines()
    for word in words:
        if word in known:
            return known[word]
    return None
