"""Compares the hardware and the size in a config's name with the case that uses it."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import vendors
from protocol.config_file import config_files
from run_benchmarks.settings.case import CaseSettings

# FlagPerf's names: config_<hardware>x<nnodes>x<nproc>.
SIZED_CONFIG = re.compile(r"config_(?P<hardware>[A-Za-z0-9]+?)x(?P<nnodes>[0-9]+)x(?P<nproc>[0-9]+)")
SEPARATORS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class NamedSize:
    """The sizes in a config's name."""

    hardware: str
    nnodes: int
    nproc: int


def named_size(config: str) -> NamedSize | None:
    """The hardware and the size in a config's name; None for a name of another form."""
    found = SIZED_CONFIG.fullmatch(config)
    return found and NamedSize(found["hardware"], int(found["nnodes"]), int(found["nproc"]))


def known_hardware() -> frozenset[str]:
    """The hardware in the names of all vendors' configs, in capital letters."""
    folders = [Path(root) for root in vendors.__path__]
    names = (name for folder in folders for configs in folder.glob("*/*/config") for name in config_files(configs))
    return frozenset(found.hardware.upper() for name in names if (found := named_size(name)) is not None)


def name_warnings(name: str, case: CaseSettings, known: Collection[str]) -> list[str]:
    """Warnings that the config of the case `name` is named for another size or, by the case's name, other hardware.

    Args:
        known: what counts as hardware in the case's name, in capital letters.
    """
    named = named_size(case.config)
    if named is None:
        return []
    warnings = []
    if (named.nnodes, named.nproc) != (case.nnodes, case.nproc):
        sizes = f"{named.nnodes} x {named.nproc} ranks, the case has {case.nnodes} x {case.nproc} (nnodes x nproc)"
        warnings.append(f"{name}.config: {case.config} is named for {sizes}")
    words = [word.upper() for word in SEPARATORS.split(name)]
    others = [word for word in words if word in known]
    if others and named.hardware.upper() not in words:
        warnings.append(f"{name}.config: {case.config} is named for {named.hardware}, the case for {', '.join(others)}")
    return warnings
