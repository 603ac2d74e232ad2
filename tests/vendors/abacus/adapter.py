"""Vendor `abacus`: a device for tests, built by tests/vendors/building.py; a copy of a project has it in vendors/."""

from typing import NoReturn

from vendors.base import ImageParameters, ProbeUnavailable, Vendor
from vendors.datasheet import row


def _open_probe() -> NoReturn:
    raise ProbeUnavailable("an abacus has no sensors")


VENDOR = Vendor(
    name="abacus",
    visible_devices_env="ABACUS_VISIBLE_DEVICES",
    backend="abacus",
    container_options="--device /dev/abacus0 --device /dev/abacus1",
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2", base_image="python:3.11-slim", python="/opt/clusterdyno/bin/python"
        )
    },
    open_probe=_open_probe,
    device_type="abacus",
    datasheets=(row("Abacus 3000", "tests", {"fp32": 0.1, "bf16": 0.2}, (10.0, 1.0), (None, None), "Abacus 3000"),),
    monitor_name="abacus",
)
