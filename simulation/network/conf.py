"""Reads SimAI.conf: how NICs and switches of the simulated network behave."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import MistakeList, input_problem
from common.units import bandwidth_bps

KILO, MEGA = 1000, 1 << 20
_SPEEDS = (25_000_000_000, 50_000_000_000, 100_000_000_000, 200_000_000_000, 400_000_000_000, 1_600_000_000_000)


def _map(values: tuple[float, ...]) -> dict[int, float]:
    return dict(zip(_SPEEDS, values, strict=True))


@dataclass(frozen=True, kw_only=True)
class NetworkConf:
    """The values of SimAI.conf, with the defaults of the file that SimAI ships.

    Thresholds of ECN are KB (1000 bytes) by the speed of the port in bit/s, `buffer_bytes` is that of a whole switch,
    intervals are ns, rates bit/s.
    """

    payload_bytes: int = 9000
    ecn: bool = True
    kmin: dict[int, float] = field(default_factory=lambda: _map((100, 200, 400, 300, 800, 600)))
    kmax: dict[int, float] = field(default_factory=lambda: _map((400, 800, 1600, 1200, 3200, 2400)))
    pmax: dict[int, float] = field(default_factory=lambda: _map((0.2, 0.2, 0.2, 0.8, 0.2, 0.2)))
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


def _speeds(words: list[str]) -> dict[int, float]:
    """A line such as `KMAX_MAP 2 25000000000 400 50000000000 800`."""
    numbers = [float(word) for word in words[1:]]
    if len(numbers) != 2 * int(words[0]) or not numbers:
        raise ValueError
    return {int(speed): value for speed, value in zip(numbers[::2], numbers[1::2], strict=True)}


_READERS: dict[str, tuple[str, Callable[[list[str]], object]]] = {
    "PACKET_PAYLOAD_SIZE": ("payload_bytes", lambda words: int(words[0])),
    "ENABLE_QCN": ("ecn", lambda words: words[0] == "1"),
    "KMIN_MAP": ("kmin", _speeds),
    "KMAX_MAP": ("kmax", _speeds),
    "PMAX_MAP": ("pmax", _speeds),
    "BUFFER_SIZE": ("buffer_bytes", lambda words: int(words[0]) * MEGA),
    "ALPHA_RESUME_INTERVAL": ("alpha_interval", lambda words: round(float(words[0]) * KILO)),
    "RATE_DECREASE_INTERVAL": ("decrease_interval", lambda words: round(float(words[0]) * KILO)),
    "RP_TIMER": ("recovery_interval", lambda words: round(float(words[0]) * KILO)),
    "EWMA_GAIN": ("ewma_gain", lambda words: float(words[0])),
    "FAST_RECOVERY_TIMES": ("fast_recoveries", lambda words: int(words[0])),
    "RATE_AI": ("rate_step", lambda words: bandwidth_bps(words[0].replace("b/s", "bps"))),
    "RATE_HAI": ("rate_leap", lambda words: bandwidth_bps(words[0].replace("b/s", "bps"))),
    "MIN_RATE": ("min_rate", lambda words: bandwidth_bps(words[0].replace("b/s", "bps"))),
    "CLAMP_TARGET_RATE": ("clamp_target", lambda words: words[0] == "1"),
    "VAR_WIN": ("variable_window", lambda words: words[0] == "1"),
    "ERROR_RATE_PER_LINK": ("error_rate", lambda words: float(words[0])),
}


def read_conf(path: Path) -> NetworkConf:
    """The configuration of a file; keys that say nothing of the network (files to write, other algorithms) are ignored.

    Raises:
        InputProblems: it cannot be read, a value is wrong, or its congestion control is another than DCQCN (CC_MODE 1).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise input_problem("--conf", path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found: dict[str, object] = {}
    mistakes = MistakeList()
    for number, words in enumerate(map(str.split, lines), 1):
        place = f"{path}, line {number}"
        if words[:1] == ["CC_MODE"] and words[1:2] != ["1"]:
            mistakes.add(place, " ".join(words), "allowed is 1 (DCQCN)")
        if words[:1] == ["LINK_DOWN"] and set(words[1:]) != {"0"}:
            mistakes.add(place, " ".join(words), "is said by --outage")
        if not words or words[0] not in _READERS:
            continue
        name, reader = _READERS[words[0]]
        try:
            found[name] = reader(words[1:])
        except (ValueError, IndexError):
            mistakes.add(place, " ".join(words)[:80], f"is no value of {words[0]}")
    mistakes.check()
    conf = NetworkConf(**found)  # type: ignore[arg-type] # the readers give what the fields are
    if not conf.kmin.keys() == conf.kmax.keys() == conf.pmax.keys():
        raise input_problem(str(path), "KMIN_MAP, KMAX_MAP, PMAX_MAP", "must name the same speeds")
    return conf
