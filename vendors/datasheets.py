"""Finds the datasheet of a device by the name that its driver gives it. Needs no torch."""

import functools
import re
from collections.abc import Mapping

import vendors
from vendors.datasheet import Datasheet

__all__ = ["Datasheet", "datasheet", "datasheets"]


def datasheet(device_name: str) -> Datasheet | None:
    """The datasheet for the device name `device_name`, None if no vendor has exactly this name."""
    return _by_name().get(re.sub(r"\s+", " ", device_name).strip().casefold())


@functools.cache
def datasheets() -> tuple[Datasheet, ...]:
    """The datasheets of all vendors."""
    return tuple(sheet for vendor in vendors.working() for sheet in vendor.datasheets)


@functools.cache
def _by_name() -> Mapping[str, Datasheet]:
    """By the names in lower case, with and without the vendor's before them: older drivers leave that out."""
    found = {}
    for vendor in vendors.working():
        for sheet in vendor.datasheets:
            for name in map(str.casefold, sheet.device_names):
                found[name] = found[f"{vendor.name} {name.removeprefix(f'{vendor.name} ')}"] = sheet
    return found
