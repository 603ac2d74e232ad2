"""A sysfs tree as a host with InfiniBand has it: values as the kernel prints them."""

from pathlib import Path


def write(folder: Path, files: dict[str, object]) -> Path:
    """Files below `folder`, each with a newline at its end."""
    for name, value in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    return folder


def rdma_port(infiniband: Path, device: str, **changes: object) -> Path:
    """A port of 400 Gbit/s on a PCIe 5.0 x16 slot of NUMA node 1; `changes` by the last part of a file's name."""
    files: dict[str, object] = {
        "ports/1/state": "4: ACTIVE",
        "ports/1/rate": "400 Gb/sec (4X NDR)",
        "ports/1/link_layer": "InfiniBand",
        "ports/1/counters/port_rcv_data": 1000,
        "ports/1/counters/port_xmit_data": 2000,
        "ports/1/counters/port_rcv_packets": 10,
        "ports/1/counters/port_xmit_packets": 20,
        "ports/1/counters/symbol_error": 0,
        "ports/1/counters/link_downed": 3,
        "ports/1/counters/port_rcv_errors": 0,
        "ports/1/hw_counters/np_cnp_sent": 5,
        "ports/1/hw_counters/local_ack_timeout_err": 0,
        "device/numa_node": 1,
        "device/current_link_speed": "32.0 GT/s PCIe",
        "device/max_link_speed": "32.0 GT/s PCIe",
        "device/current_link_width": 16,
        "device/max_link_width": 16,
    }
    named = {name: changes.get(name.rpartition("/")[2], value) for name, value in files.items()}
    return write(infiniband / device, named)
