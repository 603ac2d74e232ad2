"""Defines a datasheet: peak rates of a device by its vendor's document, for comparison with measurements.

Tensor-core rates are dense: half of those that the documents print with sparsity. fp64 is the rate of the tensor cores
where they have one, which matrix products use; fp32 that of the other cores (AMD: of both). tf32 stands only where
torch computes products of float32 in it if that is allowed. Any other type without a row has no figure in the document,
mostly because the device computes it by other means. Each row names its document.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Rates = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Datasheet:
    """Peaks of one device: `tflops` by type (1e12 operations/s), the others in 1e9 bytes/s; `source` is the document.

    `memory_GiB` is the capacity: the documents print 2**30 bytes as GB. `host_link_GBps` and `peer_link_GBps` are one
    direction of the link to the host and of all links to the other devices of the board, of which the documents print
    the sum of both directions; None where the board decides.
    """

    name: str
    source: str
    tflops: Mapping[str, float]
    memory_GBps: float  # noqa: N815 - the unit's own spelling
    memory_GiB: float  # noqa: N815
    host_link_GBps: float | None  # noqa: N815
    peer_link_GBps: float | None  # noqa: N815
    device_names: tuple[str, ...]

    @property
    def memory_bytes(self) -> int:
        """The capacity in bytes. What a program sees is up to 2 % less, with ECC in GDDR memory 7 %."""
        return int(self.memory_GiB * 2**30)


def row(
    name: str,
    source: str,
    rates: Rates,
    memory: tuple[float, float],
    links: tuple[float | None, float | None],
    *names: str,
) -> Datasheet:
    """`memory`: (1e9 bytes/s, GiB), `links`: 1e9 bytes/s one way to (host, peers); `names` as the driver's."""
    return Datasheet(
        name=name,
        source=source,
        tflops=rates,
        memory_GBps=memory[0],
        memory_GiB=memory[1],
        host_link_GBps=links[0],
        peer_link_GBps=links[1],
        device_names=names,
    )


def matrix_rates(fp64: float, fp32: float, tf32: float | None, bf16: float, fp8: float) -> Rates:
    """Rates in 1e12 operations/s of devices on which fp16 is as fast as bf16, and int8 as fp8."""
    found = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": bf16, "fp8": fp8, "int8": fp8}
    return {name: rate for name, rate in found.items() if rate is not None}
