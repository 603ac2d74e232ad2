"""Finds vendors: one folder each with an adapter.py that exports VENDOR. Nothing else in the project lists them."""

import contextlib
import difflib
import importlib
from pathlib import Path

from vendors.base import AcceleratorProbe, AcceleratorSample, ImageParameters, ProbeUnavailable, Vendor
from vendors.case_files import CaseFileError, case_environment, case_requirements

__all__ = [
    "AcceleratorProbe", "AcceleratorSample", "BrokenVendor", "CaseFileError", "ImageParameters", "ProbeUnavailable",
    "UnknownVendor", "Vendor", "available", "case_dir", "case_environment", "case_requirements", "load", "vendor_dir",
    "working",
]  # fmt: skip


class UnknownVendor(ValueError):  # noqa: N818 - reads as the fact it states
    """No folder of that name; the message lists the vendors and the nearest name."""

    def __init__(self, name: str, known: list[str]) -> None:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown vendor {name!r}: vendors/ has {', '.join(known)}{hint}")
        self.name = name
        self.known = known


class BrokenVendor(ValueError):  # noqa: N818
    """The folder exists, but its adapter.py does not export a usable VENDOR."""


def available() -> list[str]:
    """Names of all vendors, sorted: the folders with an adapter.py."""
    return sorted({adapter.parent.name for root in __path__ for adapter in Path(root).glob("*/adapter.py")})


def load(name: str) -> Vendor:
    """The vendor of that name.

    Raises:
        UnknownVendor: there is no such vendor.
        BrokenVendor: the adapter does not import, or exports no VENDOR of its folder's name.
    """
    path = vendor_dir(name) / "adapter.py"
    try:
        module = importlib.import_module(f"vendors.{name}.adapter")
    except (ImportError, SyntaxError, NameError, TypeError, ValueError, AttributeError) as error:
        raise BrokenVendor(f"{path}: does not import: {type(error).__name__}: {error}") from error
    vendor = getattr(module, "VENDOR", None)
    if not isinstance(vendor, Vendor):
        raise BrokenVendor(f"{path}: must export VENDOR, a vendors.base.Vendor; found {type(vendor).__name__}")
    if vendor.name != name:
        raise BrokenVendor(f"{path}: VENDOR.name is {vendor.name!r}, but its folder is called {name!r}")
    return vendor


def working() -> list[Vendor]:
    """All vendors whose adapters can be loaded, by name."""
    found = []
    for name in available():
        with contextlib.suppress(BrokenVendor):
            found.append(load(name))
    return found


def vendor_dir(name: str) -> Path:
    """The vendor's folder.

    Raises:
        UnknownVendor: there is no such vendor.
    """
    known = available()
    if name not in known:
        raise UnknownVendor(name, known)
    return next(Path(root) / name for root in __path__ if (Path(root) / name / "adapter.py").is_file())


def case_dir(vendor: str, model: str, framework: str) -> Path:
    """vendors/<vendor>/<model>-<framework>, whether or not it exists.

    Raises:
        UnknownVendor: there is no such vendor.
    """
    return vendor_dir(vendor) / f"{model}-{framework}"
