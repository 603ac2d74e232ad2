"""Writes one line for each flow as it finishes, in the form of ns-3's fct.txt."""

from pathlib import Path
from typing import TextIO

import numpy as np

from simulation.network.flow_level.lanes import BITS, on_wire
from simulation.network.flow_level.port_routes import DPORT
from simulation.network.outcome import NetworkRun
from simulation.network.packets import Network
from simulation.network.tables import address_text


class FlowFile:
    """The file, into which `write` puts the flows that ended since the last call."""

    def __init__(self, path: Path, network: Network) -> None:
        self.path, self._payload = path, network.conf.payload_bytes
        self._ways = network.ways
        self._known: dict[tuple[int, int, int], tuple[str, int]] = {}
        self._written = np.zeros(0, np.bool_)
        self._file: TextIO | None = None

    def write(self, run: NetworkRun) -> None:
        """Append the flows that ended, in order of their ends."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="ascii")
            self._written = np.zeros(len(run.end), np.bool_)
        new = np.flatnonzero((run.end >= 0) & ~self._written)
        new = new[np.argsort(run.end[new], kind="stable")]
        columns = run.source, run.target, run.size, run.sport, run.start, run.end - run.start
        for source, target, size, *its in zip(*(column[new].tolist() for column in columns), strict=True):
            known = self._known.get((source, target, size))
            ends, ideal = known or self._facts(source, target, size)
            sport, start, took = its
            self._file.write(f"{ends} {sport} {DPORT} {size} {start} {took} {ideal}\n")
        self._written[new] = True
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _facts(self, source: int, target: int, size: int) -> tuple[str, int]:
        """The addresses, and ns of the flow alone: round trip, and its bytes with headers over the slowest link."""
        rtt, bps = self._ways.ideal_trip(source, target, self._payload)
        sent: int = on_wire(size, self._payload)[0]
        found = f"{address_text(source)} {address_text(target)}", rtt + sent * BITS // bps
        self._known[source, target, size] = found
        return found
