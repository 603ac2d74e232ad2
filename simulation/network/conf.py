"""Reads SimAI.conf: how NICs and switches of the simulated network behave."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from simulation.topology.options import link_bandwidth

KILO, MEGA = 1000, 1 << 20
NOTES_SHOWN = 20
_REMARK = re.compile("(#|//).*")
_SPEEDS = (25_000_000_000, 50_000_000_000, 100_000_000_000, 200_000_000_000, 400_000_000_000, 1_600_000_000_000)


def _map(values: tuple[float, ...]) -> dict[int, float]:
    return dict(zip(_SPEEDS, values, strict=True))


class NetworkConf(NamedTuple):
    """The values of SimAI.conf, with the defaults of the file that SimAI ships.

    Thresholds of ECN are KB (1000 bytes) by the speed of the port in bit/s, `buffer_bytes` is that of a whole switch,
    intervals are ns, rates bit/s.
    """

    payload_bytes: int = 9000
    ecn: bool = True
    kmin: dict[int, float] = _map((100, 200, 400, 300, 800, 600))
    kmax: dict[int, float] = _map((400, 800, 1600, 1200, 3200, 2400))
    pmax: dict[int, float] = _map((0.2, 0.2, 0.2, 0.8, 0.2, 0.2))
    buffer_bytes: int = 32 * MEGA
    alpha_interval: int = 1_000
    decrease_interval: int = 4_000
    recovery_interval: int = 900_000
    ewma_gain: float = 1 / 256
    fast_recoveries: int = 1
    rate_step: float = 50e6
    rate_leap: float = 100e6
    min_rate: float = 100e6
    clamp_target: bool = False
    variable_window: bool = True
    error_rate: float = 0.0

    def speed_of(self, bps: int) -> int:
        """The speed whose thresholds a port has: its own, else the next higher one that is known (bit/s)."""
        return min((speed for speed in self.kmax if speed >= bps), default=max(self.kmax))


class _Value(NamedTuple):
    """A key's field of NetworkConf, and how its words are read."""

    name: str
    read: Callable[[Sequence[str]], object]


def _number(name: str, least: float, most: float, scale: int = 1) -> _Value:
    """A number from `least` to `most`, kept as `scale` times as many; whole where the field is."""

    def read(words: Sequence[str]) -> float:
        try:
            value = float(words[0])
        except (ValueError, IndexError):
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"a number from {least:g} to {most:g}") from None
        kept = value * scale
        if not isinstance(NetworkConf._field_defaults[name], int):
            return kept
        if scale == 1 and value % 1:
            raise ValueError("a whole number")
        return round(kept)

    return _Value(name, read)


def _speeds(name: str, most: float) -> _Value:
    """A line such as `KMAX_MAP 2 25000000000 400 50000000000 800`."""

    def read(words: Sequence[str]) -> dict[int, float]:
        try:
            count, *numbers = (float(word) for word in words)
        except ValueError:
            count, numbers = math.nan, []
        if len(numbers) != 2 * count or not numbers or not all(map(math.isfinite, numbers[::2])):
            raise ValueError("how many pairs follow, and the pairs: a speed in bit/s, a value")
        speeds = numbers[::2]
        if min(speeds) <= 0 or any(speed % 1 for speed in speeds):
            raise ValueError("speeds above 0 bit/s, whole numbers")
        if len(set(speeds)) < len(speeds):
            raise ValueError("each speed once")
        if not all(0 <= value <= most for value in numbers[1::2]):
            raise ValueError(f"values from 0 to {most:g}")
        return {int(speed): value for speed, value in zip(speeds, numbers[1::2], strict=True)}

    return _Value(name, read)


def _rate(name: str) -> _Value:
    return _Value(name, lambda words: link_bandwidth("".join(words[:1]).replace("b/s", "bps")))


def _switch(name: str) -> _Value:
    def read(words: Sequence[str]) -> bool:
        if not words or words[0] not in ("0", "1"):
            raise ValueError("0 or 1")
        return words[0] == "1"

    return _Value(name, read)


_READERS = {
    "PACKET_PAYLOAD_SIZE": _number("payload_bytes", 1, 1e6),
    "ENABLE_QCN": _switch("ecn"),
    "KMIN_MAP": _speeds("kmin", 1e9),
    "KMAX_MAP": _speeds("kmax", 1e9),
    "PMAX_MAP": _speeds("pmax", 1),
    "BUFFER_SIZE": _number("buffer_bytes", 1, 1e6, MEGA),
    "ALPHA_RESUME_INTERVAL": _number("alpha_interval", 0.001, 1e9, KILO),
    "RATE_DECREASE_INTERVAL": _number("decrease_interval", 0.001, 1e9, KILO),
    "RP_TIMER": _number("recovery_interval", 0.001, 1e9, KILO),
    "EWMA_GAIN": _number("ewma_gain", 0, 1),
    "FAST_RECOVERY_TIMES": _number("fast_recoveries", 0, 1e6),
    "RATE_AI": _rate("rate_step"),
    "RATE_HAI": _rate("rate_leap"),
    "MIN_RATE": _rate("min_rate"),
    "CLAMP_TARGET_RATE": _switch("clamp_target"),
    "VAR_WIN": _switch("variable_window"),
    "ERROR_RATE_PER_LINK": _number("error_rate", 0, 0.999),
}
# Keys of what is simulated in one way alone, with that value (CC_MODE 1: DCQCN).
_FIXED = {
    "CC_MODE": "1", "USE_DYNAMIC_PFC_THRESHOLD": "1", "L2_ACK_INTERVAL": "1", "L2_BACK_TO_ZERO": "0", "HAS_WIN": "1",
    "RATE_BOUND": "1", "ACK_HIGH_PRIO": "0",
}  # fmt: skip
# Keys that change nothing here: files, what is watched, when to stop, other congestion controls than DCQCN.
_WITHOUT_EFFECT = re.compile(
    "(FLOW|TRACE|TRACE_OUTPUT|FCT_OUTPUT|PFC_OUTPUT|TOPOLOGY|(QLEN|BW|RATE|CNP)_MON)_FILE|(QLEN_)?MON_(START|END)"
    "|(QP|QLEN|BW)_MON_INTERVAL|ENABLE_TRACE|TRACE_NODE|SIMULATOR_STOP_TIME|LINK_DOWN|DCTCP_RATE_AI|L2_CHUNK_SIZE"
    "|GLOBAL_T|FAST_REACT|U_TARGET|MI_THRESH|INT_MULTI|MULTI_RATE|SAMPLE_FEEDBACK|PINT_(LOG_BASE|PROB)"
)


def read_conf(path: Path) -> tuple[NetworkConf, list[str]]:
    """The configuration of a file, and notes on the first keys that SimAI.conf does not have.

    Raises:
        InputProblems: it cannot be read, has keys but none of SimAI.conf, a value is wrong, or is not the one that is
            simulated.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise input_problem("--conf", path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found: dict[str, object] = {}
    mistakes, notes = MistakeList(), list[str]()
    said = [(number, words) for number, line in enumerate(lines, 1) if (words := _REMARK.sub("", line).split())]
    for number, words in said:
        notes += _judged(f"{path}, line {number}", words, found, mistakes)
    if said and len(notes) == len(said):
        mistakes.add("--conf", path, "has no key of SimAI.conf")
    mistakes.check()
    if len(notes) > NOTES_SHOWN:
        notes[NOTES_SHOWN:] = [f"{path}: {len(notes) - NOTES_SHOWN} more lines have no effect"]
    conf = NetworkConf(**found)  # type: ignore[arg-type] # the readers give what the fields are
    _check_thresholds(path, conf)
    return conf, notes


def _judged(place: str, words: list[str], found: dict[str, object], mistakes: MistakeList) -> list[str]:
    """Put the value of a line into `found`, or note the mistake; returns a note if its key is unknown."""
    key, said = words[0], " ".join(words)[:80]
    if key == "LINK_DOWN" and set(words[1:]) != {"0"}:
        mistakes.add(place, said, "is said by --outage")
    if key in _FIXED:
        if words[1:] != [_FIXED[key]]:
            mistakes.add(place, said, f"allowed is {_FIXED[key]}: nothing else is simulated")
    elif key in _READERS:
        value = _READERS[key]
        try:
            found[value.name] = value.read(words[1:])
        except ValueError as error:
            mistakes.add(place, said, f"is no value of {key}: {error}")
    elif not _WITHOUT_EFFECT.fullmatch(key):
        return [f"{place}: {key[:40]} has no effect, it is no key of SimAI.conf that is known"]
    return []


def _check_thresholds(path: Path, conf: NetworkConf) -> None:
    if not conf.kmin.keys() == conf.kmax.keys() == conf.pmax.keys():
        raise input_problem(str(path), "KMIN_MAP, KMAX_MAP, PMAX_MAP", "must name the same speeds")
    wrong = [speed for speed, least in conf.kmin.items() if least > conf.kmax[speed]]
    if wrong:
        raise input_problem(str(path), "KMIN_MAP, KMAX_MAP", f"KMIN must be at most KMAX, here at {wrong[0]} bit/s")
