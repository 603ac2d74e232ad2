"""Tools between hosts: each RDMA device with those of two neighbours, or all devices of all hosts at once."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext

from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.tools.calls import Call, awaited_server
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.pytorch.host import PORT, Bench, bench_of, devices_of
from training.benchmarks.tools.table import TOOLS
from vendors.programs import Answer, NotRunError

PORTS = 64
"""Of a device: hosts that share a machine have one each."""
Said = dict[str, float | str]
"""By device the figure of a client, or why there is none."""


class _Meeting:
    """Hosts that meet with a tool, their RDMA devices; why: it cannot take part; unstarted: why, by device."""

    def __init__(self, name: str, config: Config, group: ProcessGroup) -> None:
        self.group, self.mine = group, group.placement.rank
        self.bench: Bench | None = None
        self.why: NotRunError | None = None
        self.devices: list[str] = []
        self.unstarted: dict[str, str] = {}
        try:
            self.bench, self.devices = bench_of(name, config), devices_of(config)
        except NotRunError as error:
            self.why = error
        hosts = group.gathered({"address": own_address(), "devices": self.devices})
        self.addresses = [str(host["address"]) for host in hosts]
        ranks = {
            device: [rank for rank, host in enumerate(hosts) if device in host["devices"]] for device in _all(hosts)
        }
        self.ranks_of = {device: having for device, having in ranks.items() if len(having) > 1}

    @property
    def own(self) -> list[str]:
        """The devices of this host that others have, too."""
        return [device for device, ranks in self.ranks_of.items() if self.mine in ranks]

    def port(self, device: str, rank: int) -> int:
        """Of the server of a device on a rank's host."""
        return PORT + PORTS * [*self.ranks_of].index(device) + rank % PORTS

    def next(self, device: str, steps: int = 1) -> int:
        """The rank whose host comes so many steps after this one in the ring of a device."""
        ranks = self.ranks_of[device]
        return ranks[(ranks.index(self.mine) + steps) % len(ranks)]

    def start(self, device: str, port: int, *address: str) -> Call | None:
        """A server, or a client of one at an address; None: it cannot be started."""
        try:
            return self.bench.call(device, "-p", str(port), *address) if self.bench else None
        except OSError as error:
            self.unstarted[device] = str(error)
            return None

    def read(self, device: str, client: Call | None) -> float | str:
        """The figure of a device's client, or why there is none."""
        if self.bench is None or client is None:
            return self.unstarted.get(device, "the server does not listen")
        try:
            return next(iter(self.bench.read(client.wait()).figures.values()))
        except (NotRunError, OSError) as error:
            return str(error)

    def answer(self, figures: dict[str, float], silent: dict[str, str]) -> Answer:
        """The figures of this host's devices, and why others have none."""
        if self.why is not None:
            raise self.why
        if not self.own:
            raise NotRunError("no other host has a device of one of these names", is_missing=True)
        if not figures:
            raise NotRunError(next(iter(silent.values()), "no call between two hosts"))
        alone = dict.fromkeys(set(self.devices) - {*self.own}, "no other host has a device of this name")
        return Answer(
            figures=figures, silent=alone | {part: why for part, why in silent.items() if part not in figures}
        )


def _all(hosts: Sequence[Mapping[str, Sequence[str]]]) -> list[str]:
    return list(dict.fromkeys(device for host in hosts for device in host["devices"]))


def with_neighbours(name: str, config: Config, group: ProcessGroup) -> Answer:
    """The best figure of each device over its two neighbours in a ring: a slow host is slow with both.

    Raises:
        NotRunError: this host cannot take part, or no call with it gave a result.
    """
    meeting = _Meeting(name, config, group)
    best = max if TOOLS[name].better == "higher" else min
    figures: dict[str, float] = {}
    silent: dict[str, str] = {}
    for device, ranks in meeting.ranks_of.items():
        for pairs in ring(ranks):
            for said in _meet(meeting, pairs, device):
                if isinstance(said, str):
                    silent[device] = said
                else:
                    figures[device] = best(said, figures.get(device, said))
    return meeting.answer(figures, silent)


def all_at_once(name: str, config: Config, group: ProcessGroup) -> Answer:
    """Each device of each host sends to the same one of the next host, all at once, so that every link is loaded both
    ways. Of a device the better of what it sent and received counts: a slow neighbour slows one of them.

    Raises:
        NotRunError: this host cannot take part, or no call with it gave a result.
    """
    meeting = _Meeting(name, config, group)
    with ExitStack() as calls:
        sent = _sent(meeting, calls)
        every: list[Said] = group.gathered(sent)
    figures: dict[str, float] = {}
    silent: dict[str, str] = {}
    for device in meeting.own:
        for said in (every[meeting.next(device, -1)][device], sent[device]):
            if isinstance(said, str):
                silent[device] = said
            else:
                figures[device] = max(said, figures.get(device, said))
    return meeting.answer(figures, silent)


def _sent(meeting: _Meeting, calls: ExitStack) -> Said:
    """The figures of this host's clients: all run before the first of them is waited for."""
    ports = {device: meeting.port(device, meeting.mine) for device in meeting.own}
    servers = {device: meeting.start(device, port) for device, port in ports.items()}
    for server in filter(None, servers.values()):
        calls.enter_context(server)
    listening = meeting.group.gathered(
        [device for device, server in servers.items() if server and awaited_server(server, ports[device])]
    )
    clients: dict[str, Call | None] = dict.fromkeys(meeting.own)
    for device in meeting.own:
        peer = meeting.next(device)
        if device in listening[peer]:
            clients[device] = meeting.start(device, meeting.port(device, peer), meeting.addresses[peer])
    for client in filter(None, clients.values()):
        calls.enter_context(client)
    return {device: meeting.read(device, client) for device, client in clients.items()}


BETWEEN_HOSTS: Mapping[str, Callable[[str, Config, ProcessGroup], Answer]] = {
    "pairs": with_neighbours,
    "ring": all_at_once,
}
"""By scope of a tool the way in which it runs between hosts."""


def ring(ranks: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Rounds of pairs (server, client) in which each rank meets both its neighbours, no rank twice in a round."""
    count = len(ranks)
    edges = [(ranks[i], ranks[(i + 1) % count]) for i in range(count if count > 2 else count - 1)]
    rounds: list[list[tuple[int, int]]] = [edges[0::2], edges[1::2]]
    if count > 2 and count % 2:
        rounds = [edges[0:-1:2], edges[1::2], edges[-1:]]
    return [each for each in rounds if each]


def _meet(meeting: _Meeting, pairs: Sequence[tuple[int, int]], device: str) -> list[float | str]:
    """A round, on all ranks: servers listen before clients come; the client's figure, or why none, is both's."""
    mine, group = meeting.mine, meeting.group
    server = next((pair for pair in pairs if pair[0] == mine), None)
    client = next((pair for pair in pairs if pair[1] == mine), None)
    port = meeting.port(device, mine)
    said: dict[int, float | str] = {}
    with (meeting.start(device, port) if server else None) or nullcontext() as started:
        listening = group.gathered(started is not None and awaited_server(started, port))
        if client:
            words = meeting.port(device, client[0]), meeting.addresses[client[0]]
            with (meeting.start(device, *words) if listening[client[0]] else None) or nullcontext() as call:
                said = dict.fromkeys(client, meeting.read(device, call))
        every = group.gathered(said)
    return [each[mine] for each in every if mine in each]


def own_address() -> str:
    """The address of this host that reaches the master, which other hosts reach, too; no packet is sent."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
