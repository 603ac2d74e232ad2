"""Writes one line for each flow as it finishes, in the form of ns-3's fct.txt."""

from pathlib import Path
from typing import TextIO

import numpy as np

from simulation.network.flow_level.lanes import BITS, on_wire
from simulation.network.outcome import NetworkRun
from simulation.network.packets import Network
from simulation.network.tables import flow_line


class FlowFile:
    """The file, into which `write` puts the flows that ended since the last call."""

    def __init__(self, path: Path, network: Network) -> None:
        self.path, self._payload = path, network.conf.payload_bytes
        self._ways = network.ways
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        self._written = np.zeros(0, np.bool_)
        self._file: TextIO | None = None

    def write(self, run: NetworkRun) -> None:
        """Append the flows that ended, in order of their ends."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="ascii")
            self._written = np.zeros(len(run.end), np.bool_)
        new = np.flatnonzero((run.end >= 0) & ~self._written)
        for place in new[np.argsort(run.end[new], kind="stable")].tolist():
            source, target, size = int(run.source[place]), int(run.target[place]), int(run.size[place])
            start, end = int(run.start[place]), int(run.end[place])
            ideal = self._ideal(source, target, size)
            self._file.write(flow_line(source, target, int(run.sport[place]), size, start, end - start, ideal))
        self._written[new] = True
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _ideal(self, source: int, target: int, size: int) -> int:
        """ns of the flow alone: round trip, and its bytes with headers over the slowest link."""
        if (source, target) not in self._known:
            self._known[source, target] = self._ways.ideal_trip(source, target, self._payload)
        rtt, bps = self._known[source, target]
        sent: int = on_wire(size, self._payload)[0]
        return rtt + sent * BITS // bps
