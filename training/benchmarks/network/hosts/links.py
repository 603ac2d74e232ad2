"""Nominal speeds of links, and their comparison with measurements: links.json gives one direction, with sources."""

import difflib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("links.json")

# Fractions of the advertised speed in one direction (ml-engineering, network/README: large messages reach about 80 %;
# about 40 % means that the advertised number counts both directions; over 100 % is reduction in the network).
FINE_SHARE = 0.8
DUPLEX_SHARES = (0.35, 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One kind of link: GB/s (1e9 bytes) in one direction, and the source of the number.

    `verified`: the number was read in that document when it was entered.
    """

    name: str
    gbps: float
    source: str
    verified: bool


@cache
def links() -> dict[str, Link]:
    """The table by name."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return {
        name: Link(name=name, gbps=float(row["GBps"]), source=str(row["source"]), verified=bool(row["verified"]))
        for name, row in rows.items()
        if not name.startswith("_")
    }


def link(wanted: str | float) -> Link:
    """The link of that name, or one with that many GB/s in one direction.

    Raises:
        ValueError: the name is not in the table (the message names the nearest), or the speed is not above 0.
    """
    if not isinstance(wanted, str):
        if not wanted > 0:
            raise ValueError(f"{wanted} is no speed; allowed: GB/s above 0, in one direction")
        return Link(name=f"{wanted:g} GB/s", gbps=float(wanted), source="the case's settings", verified=True)
    known = links()
    if wanted not in known:
        nearest = difflib.get_close_matches(wanted, known, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(f"{wanted!r} is no link of {TABLE.name}{hint}; known: {', '.join(known)}")
    return known[wanted]


def advertised_gbps(expected_link: str | float | None, count: int) -> float | None:
    """Advertised one-way GB/s (1e9 bytes) of the `count` links that a case expects; None without any."""
    return None if expected_link is None else link(expected_link).gbps * count


def judge_share(share: float) -> tuple[str, str]:
    """Class and meaning of `share`, the fraction measured / advertised speed in one direction.

    Source: ml-engineering, network/README, for the bounds.
    """
    if share > 1:
        return (
            "above",
            "faster than the link: in-network reduction (NVLS, SHARP) suspected, or the traffic goes elsewhere",
        )
    if share >= FINE_SHARE:
        return "fine", "fine: about 80 % and more is what large messages reach"
    if DUPLEX_SHARES[0] <= share < DUPLEX_SHARES[1]:
        return "duplex", "near 40 %: was the advertised speed the sum of both directions?"
    return "below", "below the 80 % that large messages should reach"
