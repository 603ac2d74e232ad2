"""Takes links down and up again while packets are on their way: `--outage LINKS@FROM:TO`."""

import fnmatch
import re
from collections.abc import Sequence
from typing import NamedTuple

from common.errors import MistakeList
from simulation.topology.fabric import Fabric, names, tiers

FORM = "LINKS@FROM:TO"
MOST_US = 1e12
_TEXT = re.compile(r"(?P<links>[^@]+)@(?P<begin>\d+(?:\.\d+)?):(?P<end>\d+(?:\.\d+)?)?")


class Outage(NamedTuple):
    """At `time_ns` these links (numbers of the topology's, both directions) go `down`, or are back."""

    time_ns: int
    links: tuple[int, ...]
    down: bool


def parse(texts: Sequence[str], fabric: Fabric | None, mistakes: MistakeList) -> list[Outage]:
    """Read `gpu7-leaf3@100:400` (us from the beginning; without an end the link stays down), and note mistakes; without
    a network those of the times alone.
    """
    found: list[Outage] = []
    named = names(fabric, tiers(fabric)) if texts and fabric else []
    for text in texts:
        match = _TEXT.fullmatch(text)
        if not match:
            mistakes.add("--outage", text, f"must be {FORM} in us, such as gpu7-leaf3@100:400, or @100: for ever")
            continue
        begin, end = float(match["begin"]), float(match["end"] or "inf")
        links = _matching(match["links"], fabric, named) if fabric else ()
        if fabric and not links:
            mistakes.add("--outage", text, "matches no link; a link is called gpu7-leaf3, as `topology edit` has it")
        if max(begin, float(match["end"] or 0)) > MOST_US:
            mistakes.add("--outage", text, f"must be within {MOST_US:g} us")
        elif not begin < end:
            mistakes.add("--outage", text, "must end after it begins")
        else:
            found.append(Outage(round(begin * 1000), links, down=True))
            found += [] if match["end"] is None else [Outage(round(end * 1000), links, down=False)]
    return sorted(found)


def _matching(links: str, fabric: Fabric, named: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the links that have such a name, in either order of their ends."""
    pattern = re.compile(fnmatch.translate(links))
    return tuple(
        number
        for number, (one, other, _kind) in enumerate(fabric.links())
        if pattern.match(f"{named[one]}-{named[other]}") or pattern.match(f"{named[other]}-{named[one]}")
    )
