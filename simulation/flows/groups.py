"""Says which ranks form a group: Megatron's order tp-ep-dp-pp, and the original's own."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from common.errors import MistakeList
from simulation.flows.names import EVERY_KIND, GROUP_KINDS
from workloads.rows.grid import MegatronGrid


class RankGroup(NamedTuple):
    """Ranks that communicate. `servers` lists the ranks of each server that algorithms lay rings and trees over.

    In the original's groups `servers` is its grid, which leaves out ranks of a group spread unevenly over the servers,
    and `server_count` its own number. `slots` are the places of those ranks in their servers: a slot's NIC is on the
    rail of that number. `switches` are the NVSwitches of the servers that hold a member, as many of each.
    """

    kind: str
    number: int
    members: tuple[int, ...]
    servers: tuple[tuple[int, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    switches: tuple[int, ...]

    @property
    def server_count(self) -> int:
        return len(self.servers)

    @property
    def local_count(self) -> int:
        """Members in the server that has the fewest: the number of parallel rings."""
        return min(map(len, self.servers))

    @property
    def planes(self) -> int:
        """NVSwitches of a server."""
        return len(self.switches) // len(self.servers)

    def switches_of(self, channel: int) -> tuple[int, ...]:
        """The NVSwitch of each server that a channel uses: channels take those of a server in turn."""
        return self.switches[channel % self.planes :: self.planes]


_megatron_grid = cache(MegatronGrid)


class ParallelSizes(NamedTuple):
    """How a job is cut into groups: `ranks` in all, `per_server` of them on each server."""

    ranks: int
    per_server: int
    tp: int = 1
    pp: int = 1
    ep: int = 1

    @property
    def dp(self) -> int:
        return self.ranks // (self.tp * self.pp)

    @property
    def expert_dp(self) -> int:
        return self.dp // self.ep

    def mistakes(self, total: str = "--ranks") -> MistakeList:
        """Sizes that are inconsistent, named as on the command line; `total` is what all ranks are called there."""
        found = MistakeList()
        sizes = {total: self.ranks, "--gpus-per-server": self.per_server}
        sizes |= {"--tp": self.tp, "--pp": self.pp, "--ep": self.ep}
        for flag, value in sizes.items():
            if value < 1:
                found.add(flag, value, "must be at least 1")
        if found.mistakes:
            return found
        if self.ranks % self.per_server:
            found.add(total, self.ranks, f"must be a multiple of --gpus-per-server {self.per_server}")
        if self.ranks % (self.tp * self.pp):
            stages = f" times --pp {self.pp}" if self.pp > 1 else ""
            found.add(total, self.ranks, f"must be a multiple of --tp {self.tp}{stages}")
        elif self.dp % self.ep:
            found.add("--ep", self.ep, f"must divide the {self.dp} data-parallel ranks")
        return found

    def holds(self, kind: str, rank: int) -> bool:
        """Whether a group of this kind has the rank and another; the stages between have no EMBEDDING group."""
        stage = rank * self.pp // self.ranks
        return self.rank_count(kind) > 1 and (kind != "EMBEDDING" or stage in (0, self.pp - 1))

    @property
    def grid(self) -> MegatronGrid:
        """The ranks in Megatron's order."""
        return _megatron_grid(self.tp, self.ep, self.expert_dp, self.pp)

    def rank_count(self, kind: str) -> int:
        """Ranks in a group of this kind."""
        return self.grid.count(kind)


def megatron_groups(sizes: ParallelSizes, kinds: Sequence[str] = GROUP_KINDS) -> Iterator[RankGroup]:
    """All groups of more than one rank."""
    for index, (kind, members) in enumerate(megatron_members(sizes, kinds)):
        yield _group(kind, index, members, by_server(members, sizes), sizes)


def megatron_members(sizes: ParallelSizes, kinds: Sequence[str] = GROUP_KINDS) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The kind and the ranks of each group of more than one rank."""
    for kind in kinds:
        if sizes.rank_count(kind) > 1:
            offsets = sizes.grid.offsets(kind)
            yield from ((kind, tuple([start + offset for offset in offsets])) for start in sizes.grid.starts(kind))


def megatron_group(sizes: ParallelSizes, kind: str, rank: int) -> RankGroup:
    """The group of this kind that holds a rank; there is one (`holds`), and its size is above 1."""
    members = tuple(sizes.grid.group_of(rank, kind))
    earlier = [each for each in EVERY_KIND[: EVERY_KIND.index(kind)] if sizes.rank_count(each) > 1]
    number = sum(len(sizes.grid.starts(each)) for each in earlier) + sizes.grid.starts(kind).index(members[0])
    return _group(kind, number, members, by_server(members, sizes), sizes)


def by_server(members: Sequence[int], sizes: ParallelSizes) -> tuple[tuple[int, ...], ...]:
    """Ascending members, gathered by the server they are on."""
    servers: dict[int, list[int]] = {}
    for rank in members:
        servers.setdefault(rank // sizes.per_server, []).append(rank)
    return tuple(map(tuple, servers.values()))


def _group(
    kind: str, index: int, members: tuple[int, ...], servers: tuple[tuple[int, ...], ...], sizes: ParallelSizes
) -> RankGroup:
    slots = tuple(tuple(rank % sizes.per_server for rank in ranks) for ranks in servers)
    switches = tuple(sizes.ranks + server for server in sorted({rank // sizes.per_server for rank in members}))
    return RankGroup(kind, index, members, servers, slots, switches)


def even_switches(of_servers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The first NVSwitches of each server, as many of each as the server has that has the fewest."""
    planes = min(map(len, of_servers))
    return tuple([switch for its in of_servers for switch in its[:planes]])


def original_groups(sizes: ParallelSizes) -> Iterator[RankGroup]:
    """The groups of SimAI 1.6 in its order, with its mistakes.

    EP and DP_EP groups are repeated as often as they have ranks, are absent at tp 1, and with pp above 1 the DP_EP
    groups overlap. DP groups have the stride ranks / dp, so that pp changes before dp. There are no PP groups.
    """
    for index, (kind, members) in enumerate(_original_members(sizes)):
        servers = len({rank // sizes.per_server for rank in members})
        if kind == "TP":
            servers = -(-sizes.tp // sizes.per_server)
        yield _group(kind, index, members, _grid(members, servers), sizes)


def _original_members(sizes: ParallelSizes) -> Iterator[tuple[str, tuple[int, ...]]]:
    ranks, tp, ep = sizes.ranks, sizes.tp, sizes.ep
    if tp > 1:
        for start in range(0, ranks, tp):
            yield "TP", tuple(range(start, start + tp))
    if sizes.dp > 1:
        stride = ranks // sizes.dp
        for start in range(stride):
            yield "DP", tuple(range(start, ranks, stride))
    if tp == 1:
        return
    for kind, count, step in (("EP", ep, 1), ("DP_EP", sizes.expert_dp, ep)):
        if count == 1:
            continue
        for block in range(ranks // tp // count):
            first = block * ep if kind == "EP" else block
            for _repeated in range(count):
                for place in range(tp):
                    yield kind, tuple(place + tp * (first + step * turn) for turn in range(count))


def _grid(members: tuple[int, ...], servers: int) -> tuple[tuple[int, ...], ...]:
    """The first members as the ranks of the first server, then the same shifted for every further server."""
    local = len(members) // servers
    shift = members[local] - members[0] if servers > 1 else 0
    return tuple(tuple(rank + server * shift for rank in members[:local]) for server in range(servers))


def original_group(sizes: ParallelSizes, kind: str, rank: int) -> RankGroup | None:
    """The last of the original's groups of this kind that holds a rank: the one it uses."""
    found = None
    for group in original_groups(sizes):
        if group.kind == kind and rank in group.members:
            found = group
    return found
