"""The wire of a test bed: one bridge, a network namespace a host, and addresses that nothing else on the machine uses.

All names hold the bed's, so that what is left of a bed that was killed is found by name, and nothing else is touched.
"""

import fcntl
import ipaddress
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.system import TestBedError, kill_and_wait, pids_in_namespace, run

RUN_FOLDER = Path("/run")
NETNS_FOLDER = RUN_FOLDER / "netns"
SUPERNET = ipaddress.IPv4Network("10.77.0.0/16")
MAX_HOSTS = 250
HEAD_HOST = 254


@dataclass(frozen=True)
class Network:
    """Names and addresses of one bed. Host k (from 1) has address .k, the head node .254 on the bridge."""

    bed: str
    subnet: ipaddress.IPv4Network

    @property
    def bridge(self) -> str:
        return bridge_name(self.bed)

    @property
    def head_address(self) -> str:
        """The head node's address, from which it reaches the hosts."""
        return str(self.subnet[HEAD_HOST])

    def address(self, number: int) -> str:
        return str(self.subnet[number])

    def netns(self, number: int) -> str:
        return f"cdyno-{self.bed}-{number}"

    def veth(self, number: int) -> str:
        """The head node's end of host `number`'s cable; the host's own is eth0."""
        return f"cd{self.bed}-{number}"


def bridge_name(bed: str) -> str:
    return f"cdyno-{bed}"


def choose_subnet(bed: str) -> ipaddress.IPv4Network:
    """A /24 of 10.77.0.0/16 that overlaps no route of this machine; which one is tried first depends on the bed.

    Raises:
        TestBedError: routes cover all of them.
    """
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]).stdout or "[]")
    taken = [_destination(route["dst"]) for route in routes if route["dst"] != "default"]
    subnets = list(SUPERNET.subnets(new_prefix=24))
    first = int(bed, 16) % len(subnets)
    for subnet in subnets[first:] + subnets[:first]:
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise TestBedError(f"no free /24 in {SUPERNET}: the routes of this machine cover it (ip route)")


@contextmanager
def choosing() -> Iterator[None]:
    """Held from the choice of a subnet until its bridge is there, so that two beds never choose the same one."""
    descriptor = os.open(RUN_FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _destination(text: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(text, strict=False)


def create(network: Network, count: int) -> None:
    """Make the bridge and `count` namespaces, each with a cable, an address and its loopback up.

    Raises:
        TestBedError: a command failed; remove() takes away what was made.
    """
    numbers = range(1, count + 1)
    bridge = network.bridge
    lines = [
        f"link add {bridge} type bridge",
        f"address add {network.head_address}/{network.subnet.prefixlen} dev {bridge}",
        f"link set {bridge} up",
        *(f"netns add {network.netns(number)}" for number in numbers),
    ]
    for number in numbers:
        veth = network.veth(number)
        lines += [
            f"link add {veth} type veth peer name eth0 netns {network.netns(number)}",
            f"link set {veth} master {bridge} up",
        ]
    ip_batch(lines)
    for number in numbers:
        address = f"{network.address(number)}/{network.subnet.prefixlen}"
        inside = ["link set lo up", f"address add {address} dev eth0", "link set eth0 up"]
        ip_batch(inside, netns=network.netns(number))
    _allow_forwarding(bridge)


def ip_batch(lines: Sequence[str], *, netns: str | None = None) -> None:
    """Commands of `ip`, in a namespace if one is named. Raises TestBedError at the first that fails."""
    inside = ["-netns", netns] if netns else []
    run(["ip", *inside, "-batch", "-"], text_input="\n".join(lines) + "\n", timeout=200)


def _forward_rule(bridge: str) -> list[str]:
    return ["FORWARD", "-i", bridge, "-o", bridge, "-m", "comment", "--comment", bridge, "-j", "ACCEPT"]


def _allow_forwarding(bridge: str) -> None:
    """Let frames between the hosts pass where a Docker engine of the machine set the FORWARD policy to DROP."""
    if _has_filter_table():
        run(["iptables", "-w", "5", "-I", *_forward_rule(bridge)])


def _has_filter_table() -> bool:
    if shutil.which("iptables") is None:
        return False
    return run(["iptables", "-w", "5", "-S", "FORWARD"], check=False).returncode == 0


def namespaces(bed: str) -> list[str]:
    """Names of the bed's network namespaces that exist."""
    if not NETNS_FOLDER.is_dir():
        return []
    return sorted(entry.name for entry in NETNS_FOLDER.iterdir() if entry.name.startswith(f"cdyno-{bed}-"))


def pids_inside(netns: str) -> list[int]:
    """Processes that live in a network namespace, those of containers with the host's network included."""
    try:
        inode = (NETNS_FOLDER / netns).stat().st_ino
    except OSError:
        return []
    return pids_in_namespace("net", inode)


def remove(bed: str) -> None:
    """Take away the bed's namespaces with all that runs in them, its cables, bridge and packet filter rules, if any."""
    for netns in namespaces(bed):
        kill_and_wait(pids_inside(netns))
        run(["ip", "netns", "delete", netns])
    links = json.loads(run(["ip", "-json", "link", "show"]).stdout)
    ours = {link["ifname"] for link in links if link["ifname"].startswith(f"cd{bed}-")}
    bridge = bridge_name(bed)
    if bridge in {link["ifname"] for link in links}:
        ours.add(bridge)
    for link in sorted(ours):
        # A cable goes by itself soon after its namespace: it may be gone between the two commands.
        run(["ip", "link", "delete", link], check=link == bridge)
    if _has_filter_table():
        while run(["iptables", "-w", "5", "-D", *_forward_rule(bridge)], check=False).returncode == 0:
            continue
