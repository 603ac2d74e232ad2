"""The cluster that the model is asked about, and how the workload is divided over it."""

from typing import NamedTuple, Protocol


class Cluster(NamedTuple):
    """gpus in all; per server: gpus and nics; in GB/s: nvlink of a GPU, nic of one NIC, nvls (None: there is no NVLS).

    gpu_type and nic_type are what the user named, or what stands for it; `sources` says where each bandwidth is from.
    """

    gpus: int
    gpus_per_server: int
    nics_per_server: int
    nvlink: float
    nic: float
    nvls: float | None
    gpu_type: str
    nic_type: str
    sources: tuple[tuple[str, str], ...] = ()


class Overlaps(NamedTuple):
    """The share of each group's communication that is hidden behind computation, 0 to 1."""

    dp: float
    tp: float
    ep: float
    pp: float


class Division(NamedTuple):
    """tp, ep, pp, dp: sizes of the groups. vpp: chunks a stage. ga: micro-batches. pp_comm: bytes between stages."""

    tp: int
    ep: int
    pp: int
    dp: int
    vpp: int
    ga: int
    pp_comm: int


class NicShares(Protocol):
    """A network: how many times as long its slowest GPU computes, and the share of NICs that its groups get."""

    slowness: float

    def share(self, group: str, division: Division, *, to_all: bool) -> float:
        """The share of a group's NICs, of AllToAll (`to_all`) or another collective."""


class Question(NamedTuple):
    """All inputs of a model but the rows."""

    cluster: Cluster
    division: Division
    overlaps: Overlaps
    network: NicShares | None = None

    @property
    def slowness(self) -> float:
        """How many times as long the slowest GPU computes (dimensionless)."""
        return self.network.slowness if self.network else 1.0

    def cluster_of(self, group: str, *, to_all: bool = False) -> Cluster:
        """The cluster with the NICs as a kind of groups gets them."""
        if self.network is None:
            return self.cluster
        return self.cluster._replace(nic=self.cluster.nic * self.network.share(group, self.division, to_all=to_all))
