"""Sums up how much the counters of network ports grew over a round. Needs the standard library alone."""

from collections.abc import Mapping
from typing import Any

# A host may send anything: more ports, counters or longer names than these are left out.
MAX_PORTS, MAX_COUNTERS, MAX_CHARACTERS = 256, 64, 64


class PortIncreases:
    """Takes samples of counters in order; `found` has each counter's increase, by port and name.

    A sample holds the counters that changed. A counter that went back was reset: it counts from 0 again.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, int]] = {}
        self._last: dict[tuple[str, str], int] = {}

    def take(self, ports: Mapping[str, Mapping[str, Any]]) -> None:
        """Take one sample.

        Raises:
            AttributeError, TypeError, ValueError: it does not have the form of a sample.
        """
        for port, counters in ports.items():
            for name, value in counters.items():
                self._add(str(port)[:MAX_CHARACTERS], str(name)[:MAX_CHARACTERS], int(value))

    def _add(self, port: str, name: str, value: int) -> None:
        if port not in self.found and len(self.found) >= MAX_PORTS:
            return
        counters = self.found.setdefault(port, {})
        if name not in counters and len(counters) >= MAX_COUNTERS:
            return
        last = self._last.get((port, name), value)
        counters[name] = counters.get(name, 0) + (value - last if value >= last else value)
        self._last[port, name] = value
