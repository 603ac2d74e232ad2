"""Finds the network interface from which this host reaches the master."""

import ipaddress
import socket

import psutil


class InterfaceError(Exception):
    """No interface could be determined; the message states the address looked for and the interfaces there are."""


def interface_to(address: str, port: int) -> str:
    """Name of the interface from which this host reaches `address`:`port`; loopback when it is this host's 127.0.0.1.

    Connecting a UDP socket sends nothing: the kernel only picks the route and with it the local address, whose owner is
    the interface.

    Raises:
        InterfaceError: the address does not resolve or has no route.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            local = probe.getsockname()[0]
    except OSError as error:
        raise InterfaceError(f"the master {address}:{port} cannot be reached from this host: {error}") from error
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.family == family and _same(entry.address, local) for entry in addresses):
            return name
    raise InterfaceError(f"no interface of this host has the address {local} that reaches {address}:{port}; {_list()}")


def check_interface(name: str) -> str:
    """`name` if this host has such an interface.

    Raises:
        InterfaceError: this host has no such interface.
    """
    if name not in psutil.net_if_addrs():
        raise InterfaceError(f"this host has no interface {name!r}; {_list()}")
    return name


def is_loopback(name: str) -> bool:
    """Whether every IP address of the interface is a loopback address; NCCL does not use such an interface."""
    entries = psutil.net_if_addrs()[name]
    found = [entry.address for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
    return bool(found) and all(_ip(text).is_loopback for text in found)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text.partition("%")[0])  # psutil appends the zone of link-local addresses


def _same(left: str, right: str) -> bool:
    return _ip(left) == _ip(right)


def _list() -> str:
    return f"available: {', '.join(sorted(psutil.net_if_addrs()))}"
