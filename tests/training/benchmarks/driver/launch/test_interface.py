import socket

import psutil
import pytest

from training.benchmarks.driver.launch.launcher import InterfaceError, check_interface, interface_to, is_loopback


def test_this_host_reaches_itself_over_loopback() -> None:
    name = interface_to("127.0.0.1", 29500)
    assert is_loopback(name)
    assert check_interface(name) == name


def own_addresses() -> list[tuple[str, str]]:
    return [
        (name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    ]


def test_the_master_itself_names_the_interface_that_carries_its_address() -> None:
    """The route to an own address goes over loopback, but peers reach the master at the address's interface."""
    for name, address in own_addresses():
        assert interface_to(address, 29500) == name


@pytest.mark.parametrize("address", ["no-such-host.invalid", "300.1.1.1"])
def test_an_address_that_does_not_resolve_is_named(address: str) -> None:
    with pytest.raises(InterfaceError, match=f"the master {address}:29500 cannot be reached"):
        interface_to(address, 29500)


def test_an_unknown_interface_is_answered_with_those_there_are() -> None:
    with pytest.raises(InterfaceError, match=r"no interface 'eth77'; available: .*lo"):
        check_interface("eth77")
