"""Finds in the ranks' logs which network and transports NCCL chose (NCCL_DEBUG=INFO), and its variables."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_LOG_BYTES, MAX_LOGS, MAX_NAMES = 4 << 20, 64, 64
_LINE = re.compile(rb"NCCL INFO (.{0,400})")
# "Using network IB"; "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3/GDRDMA"; "... via P2P/CUMEM/read".
_NETWORK = re.compile(r"Using network ([\w.+-]{1,40})")
_VIA = re.compile(r"\bvia ((?:NET/[\w.+-]{1,40}|P2P|SHM|COLLNET|NVLS)(?:/[\w.,+-]{1,40}){0,3})")
_VERSION = re.compile(r"NCCL version (\S{1,40})")


def describe(folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """For sys_info.json: `variables` (NCCL_* of the ranks), and from their logs `networks`, `transports`, `version`.

    networks: each that NCCL says it uses, with the number of ranks; transports: by kind ("NET/IB", "P2P", "SHM"), the
    number of connections; devices: by NET device ("NET/IB/3"). Read: the first MAX_LOG_BYTES of each log.
    """
    variables = {name: value for name, value in environment.items() if name.startswith("NCCL_")}
    found: dict[str, Any] = {"variables": dict(sorted(variables.items())[:MAX_NAMES])}
    if variables.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return found
    networks, transports, devices, versions = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for log in sorted(folder.glob("rank*.out.log"))[:MAX_LOGS]:
        for text in _lines(log):
            networks.update(match[1] for match in _NETWORK.finditer(text))
            versions.update(match[1] for match in _VERSION.finditer(text))
            for match in _VIA.finditer(text):
                parts = match[1].split("/")
                is_net = parts[0] == "NET"
                transports["/".join(parts[:2]) if is_net else parts[0]] += 1
                if is_net and len(parts) > 2:
                    devices["/".join(parts[:3])] += 1
    counted = {"networks": networks, "transports": transports, "devices": devices}
    found |= {name: dict(counter.most_common(MAX_NAMES)) for name, counter in counted.items()}
    return found | ({"version": min(versions)} if versions else {})


def _lines(log: Path) -> list[str]:
    """The text behind "NCCL INFO" in each line of the log's beginning."""
    try:
        with log.open("rb") as file:
            data = file.read(MAX_LOG_BYTES)
    except OSError:
        return []
    return [match[1].decode("utf-8", "replace") for match in _LINE.finditer(data)]
