"""Bandwidths of GPUs and NICs by their names.

NVLink: GB/s that NCCL reckons per link (SM80 20.0, SM90 20.6, SM100 40.1: src/graph/topo.h of NCCL 2.27) times the
links of the part (NVIDIA's data sheets: A100 12, A800 8, H100, H200 and H20 18, H800 8, B200 and GB200 18).
NVLS: bus bandwidth of an AllReduce among 8 GPUs, 475 and 215 GB/s as in SimAI 1.7; for Blackwell 475 GB/s times the
ratio of the links' bandwidths and of NCCL's efficiencies of NVLS (0.74 to 0.85: src/graph/tuning.cc of NCCL 2.27).
NIC: 23.5 and 48.5 GB/s of 200 and 400 Gbit/s as in SimAI 1.7; ConnectX-8 has 800 Gbit/s (NVIDIA's data sheet), at the
same share of the line rate 97 GB/s.
"""

from typing import NamedTuple


class GpuPart(NamedTuple):
    """nvlink: GB/s of one GPU in one direction; nvls: AllReduce bus bandwidth in GB/s among 8 GPUs, None without.

    The sources say where the two are from.
    """

    nvlink: float
    nvls: float | None
    nvlink_source: str
    nvls_source: str = "has none"

    def nvls_at(self, nvlink: float) -> float | None:
        """GB/s of NVLS where a GPU's NVLink has `nvlink` GB/s: both change alike."""
        return None if self.nvls is None else self.nvls * nvlink / self.nvlink


_AMPERE, _HOPPER, _BLACKWELL = 20.0, 20.6, 40.1
_SIMAI = "SimAI 1.7"
_BLACKWELL_NVLS = "SimAI 1.7's 475 GB/s of H100 x 40.1/20.6 x 0.74/0.85 (NCCL 2.27, topo.h and tuning.cc)"


def _gpu(link: float, links: int, nvls: float | None = None, nvls_source: str = _SIMAI) -> GpuPart:
    source = f"{link} GB/s a link (NCCL 2.27, src/graph/topo.h) x {links} links (NVIDIA's data sheet)"
    return GpuPart(link * links, nvls, source, nvls_source if nvls else "has none")


_BLACKWELL_PART = _gpu(_BLACKWELL, 18, 475.0 * _BLACKWELL / _HOPPER * 0.74 / 0.85, _BLACKWELL_NVLS)
GPUS = {
    "A100": _gpu(_AMPERE, 12),
    "A800": _gpu(_AMPERE, 8),
    "H100": _gpu(_HOPPER, 18, 475.0),
    "H200": _gpu(_HOPPER, 18, 475.0),
    "H20": _gpu(_HOPPER, 18, 475.0),
    "H800": _gpu(_HOPPER, 8, 215.0),
    "B200": _BLACKWELL_PART,
    "GB200": _BLACKWELL_PART,
}
NICS = {"cx6": 23.5, "cx7": 48.5, "bf3": 48.5, "cx8": 97.0}
NIC_SOURCES = {
    "cx6": f"200 Gbit/s, {_SIMAI}",
    "cx7": f"400 Gbit/s, {_SIMAI}",
    "bf3": f"400 Gbit/s, {_SIMAI}",
    "cx8": "800 Gbit/s (NVIDIA ConnectX-8 SuperNIC User Manual), at the same share of the line rate as cx7",
}
SIMAI_GPUS = ("A100", "A800", "H100", "H800", "H20")
SIMAI_NICS = ("cx6", "cx7", "bf3")
NVLS_MEASURED_RANKS = 8
