"""A bad wire: what a host sends is held to a rate, delayed, or lost at random; all of it, or what goes to one peer.

Like tc netem on the host's eth0, of which it needs nothing: many kernels are built without. Rate is HTB inside the
host. Loss is a classifier in BPF at the head node's end of the cable that drops frames at random. Delay is the process
`tests.cluster.delay`: it reads the frames there, the classifier drops the kernel's own copy, and when they are due it
puts them into the bridge through a second cable.
"""

import ipaddress
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.network import Network, ip_batch
from tests.cluster.system import TestBedError, run

READY_SECONDS = 10.0
# Classic BPF: operation codes, the place of a random number, and the verdicts of tc's direct action.
_LOAD_HALF, _LOAD_WORD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x28, 0x20, 0x15, 0x35, 0x06
_RANDOM = 0xFFFFF000 + 56
_NEXT_FILTER, _PASS, _DROP = 0xFFFFFFFF, 0, 2
_ETHERTYPE_AT, _DESTINATION_AT, _IPV4 = 12, 30, 0x0800
_LAST_PRIORITY = 1000
_UNLIMITED = "100gbit"


@dataclass(frozen=True)
class Impairment:
    """Of what the host sends: `rate` in tc's units ("100mbit"), `delay_s` seconds more, `loss` the share lost."""

    rate: str | None = None
    delay_s: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        if self.delay_s < 0 or not 0 <= self.loss < 1:
            raise ValueError(f"{self}: delay_s is 0 or more, loss at least 0 and below 1")


@dataclass
class Netem:
    """What ails the cable of host `number`, by the peer's address ("" for everybody else)."""

    network: Network
    number: int
    ailments: dict[str, Impairment] = field(default_factory=dict)
    _forwarder: subprocess.Popen[str] | None = None

    def set(self, peer: str, impairment: Impairment | None) -> None:
        """Put one impairment in place of the peer's former one, None for none.

        Raises:
            TestBedError: the kernel refused something; what it said is in the message.
        """
        self.clear()
        if impairment is not None:
            self.ailments[peer] = impairment
        else:
            self.ailments.pop(peer, None)
        self._limit_rates()
        if any(each.delay_s for each in self.ailments.values()):
            self._start_forwarder()
        if any(each.delay_s or each.loss for each in self.ailments.values()):
            self._drop_frames()

    def clear(self) -> None:
        """A whole cable; `ailments` keeps what was asked for."""
        netns, veth = self.network.netns(self.number), self.network.veth(self.number)
        run(["tc", "-n", netns, "qdisc", "del", "dev", "eth0", "root"], check=False)
        run(["tc", "qdisc", "del", "dev", veth, "ingress"], check=False)
        run(["ip", "link", "delete", self._outlet], check=False)
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.communicate()
            self._forwarder = None

    def change(self, rate: str) -> None:
        """Another rate for everybody, at once and without a gap, where one is set."""
        tc = ["tc", "-n", self.network.netns(self.number)]
        run([*tc, "class", "change", "dev", "eth0", "parent", "1:", "classid", "1:1", *_shape(rate)])

    @property
    def _outlet(self) -> str:
        """The cable's end through which delayed frames leave; the other, in the bridge, has one letter more."""
        return f"{self.network.veth(self.number)}d"

    def _limit_rates(self) -> None:
        """HTB classes; what has none goes out at once. The burst is small against a message, the quantum a segment."""
        if not any(each.rate for each in self.ailments.values()):
            return
        rates = {peer: each.rate or _UNLIMITED for peer, each in self.ailments.items()}
        tc = ["tc", "-n", self.network.netns(self.number)]
        default = ["default", "1"] if "" in rates else []
        run([*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", *default])
        for place, (peer, rate) in enumerate(sorted(rates.items()), start=1):  # "" comes first: 1:1, the default
            number = f"1:{place:x}"
            run([*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", number, *_shape(rate)])
            if peer:
                rule = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{peer}/32", "flowid", number]
                run([*tc, "filter", "add", "dev", "eth0", "parent", "1:", *rule])

    def _start_forwarder(self) -> None:
        """Lay the second cable, whose end in the bridge neither learns addresses nor takes frames, and start it."""
        outlet, inlet = self._outlet, f"{self._outlet}b"
        ip_batch(
            [
                f"link add {outlet} type veth peer name {inlet}",
                f"link set {outlet} addrgenmode none up",
                f"link set {inlet} master {self.network.bridge}",
                f"link set {inlet} type bridge_slave learning off flood off mcast_flood off bcast_flood off",
                f"link set {inlet} addrgenmode none up",
            ]
        )
        delays = [f"{peer or 'all'}={each.delay_s!r}:{each.loss!r}" for peer, each in self.ailments.items()]
        argv = [sys.executable, "-m", "tests.cluster.delay", self.network.veth(self.number), outlet, *delays]
        root = Path(__file__).resolve().parents[2]
        self._forwarder = subprocess.Popen(
            argv, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._forwarder.stdout is not None
        ready, _, _ = select.select([self._forwarder.stdout], [], [], READY_SECONDS)
        if not ready or self._forwarder.stdout.readline() != "ready\n":
            self._forwarder.kill()
            printed = self._forwarder.communicate()[0].strip() or "no output"
            raise TestBedError(f"{' '.join(argv)}: did not come up: {printed}")

    def _drop_frames(self) -> None:
        """The classifiers at the cable's end; with loss each segment is a frame of its own, as on a wire."""
        veth = self.network.veth(self.number)
        if any(each.loss for each in self.ailments.values()):
            ip_batch(["link set eth0 gso_max_segs 1"], netns=self.network.netns(self.number))
        run(["tc", "qdisc", "add", "dev", veth, "ingress"])
        delays = any(each.delay_s for each in self.ailments.values())
        for number, (peer, each) in enumerate(sorted(self.ailments.items()), start=1):
            priority = str(number if peer else _LAST_PRIORITY)
            # Where frames are delayed, the forwarder has all of them, and loses those that are to be lost.
            code = classifier(peer, 1.0 if delays else each.loss)
            rule = ["protocol", "all", "prio", priority, "bpf", "direct-action", "bytecode", code]
            run(["tc", "filter", "add", "dev", veth, "ingress", *rule])


def _shape(rate: str) -> list[str]:
    """HTB's parameters of a rate."""
    return ["htb", "rate", rate, "ceil", rate, "burst", "64k", "cburst", "64k", "quantum", "15000"]


def classifier(peer: str, loss: float) -> str:
    """tc's text of a program that drops this share of the IPv4 frames to `peer` ("" for every destination)."""
    to_peer = [(_LOAD_WORD, 0, 0, _DESTINATION_AT), (_IF_EQUAL, 0, 4, int(ipaddress.IPv4Address(peer)))] if peer else []
    at_random = [(_LOAD_WORD, 0, 0, _RANDOM), (_IF_AT_LEAST, 1, 0, min(round(loss * 2**32), 2**32 - 1))]
    program = [
        (_LOAD_HALF, 0, 0, _ETHERTYPE_AT),
        (_IF_EQUAL, 0, len(to_peer) + 4, _IPV4),
        *to_peer,
        *at_random,
        (_RETURN, 0, 0, _DROP),
        (_RETURN, 0, 0, _PASS),
        (_RETURN, 0, 0, _NEXT_FILTER),
    ]
    return ",".join([str(len(program)), *(" ".join(map(str, instruction)) for instruction in program)])
