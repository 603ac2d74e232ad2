"""Habana's own test of Gaudi accelerators: how it is called, and what it prints."""

import contextlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from vendors.programs import NotRunError, Program, patterns

PCI_DEVICES = Path("/sys/bus/pci/devices")
HABANA = "0x1da3"
MODELS = {"0x1020": "gaudi2", "0x1021": "gaudi2", "0x1060": "gaudi3", "0x1062": "gaudi3", "0x1063": "gaudi3"}
"""Names that hl_qual has for devices of HABANA, by the number of the kind on PCI, as Linux's driver habanalabs."""
_JUDGED = re.compile(r"^(?P<part>.*?)\b(?P<verdict>PASSED|FAILED)\b(?P<why>.*)$", re.MULTILINE)


def model_of_host(root: Path = PCI_DEVICES) -> str:
    """The name that hl_qual has for the Gaudis of this host.

    Raises:
        NotRunError: there is none that it tests, or there are several kinds; a host that shows none is not excused.
    """
    kinds: set[str] = set()
    for vendor in root.glob("*/vendor"):
        with contextlib.suppress(OSError):
            if vendor.read_text(encoding="ascii", errors="replace").strip() == HABANA:
                kinds.add(vendor.with_name("device").read_text(encoding="ascii", errors="replace").strip()[:10])
    names = {MODELS.get(kind, "") for kind in kinds}
    if len(names) != 1 or "" in names:
        found = ", ".join(sorted(kinds)) or "none"
        why = f"hl_qual cannot run: it tests Gaudi 2 or Gaudi 3, this host's devices of PCI vendor {HABANA}: {found}"
        raise NotRunError(why, is_missing=bool(kinds))
    return names.pop()


PROGRAMS: Mapping[str, Program] = {
    "hl_qual": Program(
        command=("hl_qual", "-{model}", "-c", "all", "-rmod", "parallel", "-f2", "-t", "240", "-dis_mon"),
        read=partial(patterns, pattern=_JUDGED, good="PASSED"),
        usual={r"-t (\d+)\b": 0.0, "": 300.0},
        seconds=1800,
        folders=("/opt/habanalabs/qual/gaudi2/bin", "/opt/habanalabs/qual/gaudi3/bin"),
        model=model_of_host,
        source="https://docs.habana.ai/en/latest/Management_and_Monitoring/Qualification_Library/index.html",
    ),
}
