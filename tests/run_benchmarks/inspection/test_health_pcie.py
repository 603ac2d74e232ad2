"""Health of hosts: lanes and speeds of PCIe devices, beside their slots and the other hosts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from run_benchmarks.inspection.health import judged, parsed
from tests.run_benchmarks.inspection.made_hosts import host_files, looked, said, tree


def test_a_narrow_slot_of_every_host_is_no_failure(tmp_path: Path) -> None:
    healths = {f"n{n}": looked(tree(tmp_path / f"{n}", host_files(8, firmware=f"{n}"))) for n in range(2)}
    found = said(healths)
    assert found["n0", "PCIe 0000:3b:00.0", "x8 of x16"] == found["n1", "PCIe 0000:3b:00.0", "x8 of x16"] == "warning"


def test_a_card_with_more_lanes_than_the_port_above_it_is_no_finding(tmp_path: Path) -> None:
    root = tree(tmp_path, host_files(8))
    split(root)
    assert not any(key[1].startswith("PCIe") for key in said({"n0": looked(root)}))


@pytest.mark.parametrize(("width", "is_function"), [(0, False), (255, False), (0, True)])
def test_a_card_whose_width_the_kernel_does_not_tell_is_not_passed(
    width: int, is_function: bool, tmp_path: Path
) -> None:
    """A virtual function has no link of its own."""
    of_parent = {"sys/bus/pci/devices/0000:3b:00.0/physfn/class": "0x030200\n"} if is_function else {}
    found = said({"n0": looked(tree(tmp_path, host_files(width) | of_parent))})
    told = ("n0", "PCIe links", "the kernel does not tell the width of 0000:3b:00.0")
    assert {key: how for key, how in found.items() if "PCIe" in key[1]} == ({} if is_function else {told: "not seen"})


def split(root: Path) -> None:
    """Hang the GPU below a port of eight lanes, as a BIOS does that splits the slot's sixteen."""
    device, port = root / "sys/bus/pci/devices/0000:3b:00.0", root / "sys/devices/0000:3a:01.0"
    tree(port, {"max_link_width": "8\n"})
    device.rename(port / device.name)
    device.symlink_to(port / device.name)


def test_a_port_split_on_one_host_is_a_failure_and_one_that_is_so_everywhere_is_not(tmp_path: Path) -> None:
    split(tree(tmp_path / "odd", host_files(8)))
    for hosts, severity in ((2, "failure"), (1, "warning")):
        healths = {f"n{n}": looked(tree(tmp_path / f"{n}", host_files())) for n in range(hosts)}
        found = {key: how for key, how in said(healths | {"odd": looked(tmp_path / "odd")}).items() if "PCIe" in key[1]}
        assert found == {("odd", "PCIe 0000:3b:00.0", "x8 of x16"): severity}
    usual = [("3b", 16, 16), ("5e", 16, 16), ("9a", 8, 8)]
    assert widths([usual] * 4) == {}, "a board that gives one of three the half"
    assert widths([usual] * 3 + [[("3b", 8, 8), ("5f", 16, 16), ("9b", 8, 8)]]) == {"n3 9b": "failure"}
    other_board = [("3b", 8, 8), ("5f", 16, 16), ("9b", 8, 8)]
    assert widths([usual] * 3 + [other_board] * 2) == {"n3 9b": "warning", "n4 9b": "warning"}, "perhaps another board"
    slow = [("3b", 16, 16), ("5e", 16, 4), ("9a", 8, 8)]
    assert widths([usual] * 3 + [[(bus, now, most) for bus, most, now in slow]]) == {"n3 5e": "failure"}
    assert widths([usual] * 3 + [usual[1:]]) == {"n3 9a": "warning"}, "no other host has as many"
    wide, narrow = [("3b", 16, 16)], [("3b", 8, 16)]
    assert widths([wide, narrow]) == {"n1 3b": "warning"} and widths([narrow, wide]) == {"n0 3b": "warning"}
    assert widths([narrow, wide, wide]) == {"n0 3b": "failure"}


def widths(hosts: Sequence[Sequence[tuple[str, int, int]]]) -> dict[str, str]:
    """By host and bus of a device the severity of what is said of its lanes: what it has, and can have."""
    lines = [[f"pci\t{bus} 0x10de:0x2330 {now} {most}\n" for bus, now, most in each] for each in hosts]
    found = said({f"n{number}": parsed("".join(each) + "end\tok\n") for number, each in enumerate(lines)})
    return {f"{host} {subject.removeprefix('PCIe ')}": severity for (host, subject, _), severity in found.items()}


def nics(root: Path, *speeds: float) -> Path:
    """A host with a NIC at each speed in GT/s, of the 32 GT/s that it can be."""
    for number, speed in enumerate(speeds):
        nic = root / f"sys/bus/pci/devices/0000:8{number}:00.0"
        found = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "max_link_speed": "32.0 GT/s PCIe"}
        tree(nic, {key: f"{value}\n" for key, value in (found | {"current_link_speed": f"{speed} GT/s PCIe"}).items()})
    return tree(root, host_files())


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([[32.0]] * 3 + [[16.0]], {"n3 80": "failure"}),
        ([[16.0]] + [[32.0]] * 3, {"n0 80": "failure"}),
        ([[32.0, 32.0]] * 3 + [[32.0, 16.0]], {"n3 81": "failure"}),
        ([[16.0]], {"n0 80": "warning"}),
        ([[16.0]] * 4, {f"n{n} 80": "warning" for n in range(4)}),
        ([[16.0, 32.0]], {"n0 80": "warning"}),
        ([[16.0], [32.0]], {"n0 80": "warning"}),
        ([[32.0], [16.0]], {"n1 80": "warning"}),
    ],
)
def test_a_nic_slower_than_its_slot_can_be_is_told_and_fails_where_those_of_most_hosts_are_faster(
    hosts: Sequence[Sequence[float]], expected: dict[str, str], tmp_path: Path
) -> None:
    healths = {f"n{n}": looked(nics(tmp_path / f"{n}", *speeds)) for n, speeds in enumerate(hosts)}
    found = {key: severity for key, severity in said(healths).items() if key[1].startswith("PCIe")}
    assert {f"{host} {subject[10:12]}": severity for (host, subject, _), severity in found.items()} == expected
    assert {what for *_, what in found} == {"16 of 32 GT/s"}


def test_a_slower_nic_is_told_the_speed_that_most_have(tmp_path: Path) -> None:
    healths = {f"n{n}": looked(nics(tmp_path / f"{n}", speed)) for n, speed in enumerate([16.0, 16.0, 16.0, 8.0])}
    expected = {host: wanted for host, (subject, _, wanted, _, _) in judged(healths) if subject.startswith("PCIe")}
    slot = "32 GT/s, as it and its slot can"
    assert expected == {"n0": slot, "n1": slot, "n2": slot, "n3": "16 GT/s, as most of its kind"}


def test_a_nic_as_fast_as_the_port_above_it_is_no_finding(tmp_path: Path) -> None:
    root = nics(tmp_path, 16.0)
    device, port = root / "sys/bus/pci/devices/0000:80:00.0", root / "sys/devices/0000:7f:01.0"
    tree(port, {"max_link_speed": "16.0 GT/s PCIe\n"})
    device.rename(port / device.name)
    device.symlink_to(port / device.name)
    health = looked(root)
    assert health.lines["pcie_speed"] == ["0000:80:00.0 0x15b3:0x1021 16.0 32.0 16.0"]
    assert not any(key[1].startswith("PCIe") for key in said({"n0": health}))
