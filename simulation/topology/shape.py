"""Holds the parameters of a template and the counts and node ids that follow from them."""

from typing import NamedTuple


class LinkText(NamedTuple):
    """The text of a link after its two nodes; the texts stand there as the user wrote them."""

    bandwidth: str
    latency: str
    error_rate: str

    def __str__(self) -> str:
        return f"{self.bandwidth} {self.latency} {self.error_rate}"


class FabricShape(NamedTuple):
    """Servers with NVSwitches, one or two NICs per GPU, leaves, and spines that every leaf reaches.

    A GPU's NICs belong to `tors` sets of leaves. A set has `rails` leaves per segment: GPU i of a server reaches leaf
    i mod rails of its segment, and a segment ends when a leaf has `nics_per_leaf` GPUs. With two `planes` the first
    set reaches the first half of the spines (rounded up), the second set the others.
    """

    gpus: int
    gpus_per_server: int
    gpu_type: str
    nvswitches_per_server: int
    rails: int
    tors: int
    planes: int
    nics_per_leaf: int
    spines: int
    nvlink: LinkText
    nic: LinkText
    uplink: LinkText

    @property
    def servers(self) -> int:
        """Number of servers."""
        return self.gpus // self.gpus_per_server

    @property
    def nvswitches(self) -> int:
        """Number of NVSwitches of all servers; their ids follow those of the GPUs."""
        return self.servers * self.nvswitches_per_server

    @property
    def segment_gpus(self) -> int:
        """GPUs of a full segment."""
        return self.nics_per_leaf * self.rails

    @property
    def segments(self) -> int:
        """Number of segments; the last one may be smaller."""
        return -(-self.gpus // self.segment_gpus)

    @property
    def leaves_per_set(self) -> int:
        """Leaves of one set; their ids follow those of the NVSwitches, set after set."""
        return self.segments * self.rails

    @property
    def leaves(self) -> int:
        """Leaves of all sets."""
        return self.leaves_per_set * self.tors

    @property
    def first_leaf(self) -> int:
        """Id of the first leaf."""
        return self.gpus + self.nvswitches

    @property
    def first_spine(self) -> int:
        """Id of the first spine."""
        return self.first_leaf + self.leaves

    @property
    def nodes(self) -> int:
        """GPUs and switches of all kinds."""
        return self.first_spine + self.spines

    def spines_of_set(self, tor: int) -> range:
        """Ids of the spines that the leaves of a set reach."""
        if self.planes == 1:
            return range(self.first_spine, self.nodes)
        middle = self.first_spine + -(-self.spines // 2)
        return range(middle, self.nodes) if tor else range(self.first_spine, middle)

    @property
    def links(self) -> int:
        """Links of all kinds."""
        up = sum(self.leaves_per_set * len(self.spines_of_set(tor)) for tor in range(self.tors))
        return self.gpus * (self.nvswitches_per_server + self.tors) + up
