"""Units of the command line and the files: bandwidths such as 400Gbps, times such as 0.5us, sizes such as 16M."""

import re

BANDWIDTH_FORM = "a positive number with a unit, such as 400Gbps, 50GBps or 100Mb/s"
TIME_FORM = "a number of at least 0 with a unit, such as 0.0005ms, 0.5us or 500ns"
SIZE_FORM = "a positive number of bytes, or one with K, M, G or T for powers of 1024, such as 16M"

_NUMBER = r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_BANDWIDTH = re.compile(rf"{_NUMBER} ?(?P<prefix>[kKMGT]i?)?(?P<unit>bps|b/s|Bps|B/s)")
_TIME = re.compile(rf"{_NUMBER} ?(?P<unit>fs|ps|ns|us|ms|s|min)")
_SIZE = re.compile(rf"{_NUMBER} ?(?P<prefix>[kKMGT]?)(?:i?B)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_SECONDS = {"fs": 1e-15, "ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def bandwidth_bps(text: str) -> float:
    """Bits per second of `400Gbps`; the prefixes k, M, G, T are powers of 1000, Ki, Mi, Gi, Ti of 1024.

    Raises:
        ValueError: the text has another form, or the number is 0.
    """
    match = _BANDWIDTH.fullmatch(text)
    if match is None or float(match["number"]) <= 0:
        raise ValueError(BANDWIDTH_FORM)
    prefix = match["prefix"] or ""
    base = 1024.0 if prefix.endswith("i") else 1000.0
    per_unit = 8 if match["unit"].startswith("B") else 1
    return float(float(match["number"]) * base ** _POWERS[prefix[:1]] * per_unit)


def time_seconds(text: str) -> float:
    """Seconds of `0.5us`.

    Raises:
        ValueError: the text has another form.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(TIME_FORM)
    return float(match["number"]) * _SECONDS[match["unit"]]


def size_bytes(text: str) -> int:
    """Bytes of `16M`: 16777216.

    Raises:
        ValueError: the text has another form, or is not a whole number of bytes above 0.
    """
    match = _SIZE.fullmatch(text)
    size = 0.0 if match is None else float(match["number"]) * 1024 ** _POWERS[match["prefix"]]
    if match is None or size <= 0 or size != int(size):
        raise ValueError(SIZE_FORM)
    exact = match["number"].isdecimal()
    return int(match["number"]) * 1024 ** _POWERS[match["prefix"]] if exact else int(size)


def format_bandwidth(bits_per_second: float) -> str:
    """`400Gbps` or `1.8Tbps` for bits per second."""
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if bits_per_second >= factor:
            return f"{bits_per_second / factor:.6g}{name}bps"
    return f"{bits_per_second:.6g}bps"
