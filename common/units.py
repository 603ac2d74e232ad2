"""Units of the command line and the files: bandwidths such as 400Gbps, times such as 0.5us, sizes such as 16M.

One grammar of sizes for all commands: a number of bytes, or one with K, M, G or T (also small) for powers of 1024, as
nccl-tests and Docker have it; KiB and MiB say the same. KB and MB are refused, since half of the world means 1000.
"""

import math
import re
from collections.abc import Iterator, Mapping

BANDWIDTH_FORM = "a positive number with a unit, such as 400Gbps, 50GBps or 100Mb/s"
RATE_FORM = "a positive number of GB/s, or one with its unit, such as 450GBps or 3600Gbps"
TIME_FORM = "a number of at least 0 with a unit, such as 0.0005ms, 0.5us or 500ns"
SIZE_FORM = "a size such as 4096, 512K, 16M or 1.5G, in bytes; K, M, G and T are powers of 1024"
SIZES_FORM = (
    "a size such as 64, 4K, 1M or 1.5G (binary), a range such as 8..256M x2 or 1M..8M +1M, or a comma list of these"
)
MAX_SIZES = 4096

_NUMBER = r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_BANDWIDTH = re.compile(rf"{_NUMBER} ?(?P<prefix>[kKMGT]i?)?(?P<unit>bps|b/s|Bps|B/s)")
_TIME = re.compile(rf"{_NUMBER} ?(?P<unit>fs|ps|ns|us|ms|s|min)")
_SIZE = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][0-9]{1,2})?)\s*(?P<prefix>[kKmMgGtT]?)(?:(?P<binary>i)?[bB])?"
)
_RANGE = re.compile(r"(?P<begin>[^+x*]+?)\s*\.\.\s*(?P<end>[^+x*]+?)\s*(?:(?P<op>[x*+])\s*(?P<step>[^+x*]+))?")
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


def rate_gbps(text: str) -> float:
    """GB/s of `450GBps` or `3600Gbps`; a number alone is GB/s, as SimAI has it.

    Raises:
        ValueError: the text has another form, or the number is not above 0.
    """
    number = re.fullmatch(_NUMBER, text)
    rate = bandwidth_bps(text) / 8e9 if number is None else float(text)
    if not 0 < rate < math.inf:
        raise ValueError(RATE_FORM)
    return rate


def rates_taken(given: Mapping[str, str | None]) -> str:
    """The units in which bare numbers were read, a line for each option: those of topologies are in Gbps."""
    bare = {flag: text for flag, text in given.items() if text is not None and re.fullmatch(_NUMBER, text)}
    return "".join(f"\n{flag} {text} is {text} GB/s, {8 * float(text):g} Gbps" for flag, text in bare.items())


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
        ValueError: the text has another form, or is not a whole number of bytes above 0. KB, MB, GB and TB are refused,
            since they may mean powers of 1000 or of 1024. The message says what is allowed.
    """
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped)
    if match is None:
        raise ValueError(SIZE_FORM)
    prefix = match["prefix"].upper()
    if prefix and stripped[-1] in "bB" and not match["binary"]:
        raise ValueError(f"leaves open whether 1000 or 1024 is meant; write {stripped[:-1]} or {stripped[:-1]}iB")
    from decimal import Decimal  # takes long to import, and few commands have a size

    size = Decimal(match["number"]) * 1024 ** _POWERS[prefix]  # exact where a float is not
    if size == 0:
        raise ValueError(f"is zero bytes; allowed is {SIZE_FORM}")
    if size != int(size):
        raise ValueError(f"is no whole number of bytes; allowed is {SIZE_FORM}")
    return int(size)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Bytes of every size that `text` names, in the order written; a range includes its end if a step falls on it.

    A range without a step doubles.

    Raises:
        ValueError: a part is wrong (the message names it), or there are more than MAX_SIZES sizes.
    """
    sizes: list[int] = []
    for part in text.split(","):
        for size in _expand(part.strip()):
            sizes.append(size)
            if len(sizes) > MAX_SIZES:
                raise ValueError(f"{text!r} names more than {MAX_SIZES} sizes; use a larger step")
    return tuple(sizes)


def format_size(size: int) -> str:
    """The shortest exact way to write `size` bytes: 1M, 1536K, 1000."""
    for unit in ("G", "M", "K"):
        if size % 1024 ** _POWERS[unit] == 0 and size:
            return f"{size // 1024 ** _POWERS[unit]}{unit}"
    return str(size)


def readable_bytes(size: int) -> str:
    """A number of bytes in the largest power of 1024 that is not greater than it."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.4g} {unit}"


def _expand(part: str) -> Iterator[int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        yield _one_of_list(part)
        return
    begin, end = _one_of_list(match["begin"]), _one_of_list(match["end"])
    if end < begin:
        raise ValueError(f"{part!r} ends below its begin; allowed: begin..end with begin <= end")
    step = 2 if match["step"] is None else _one_of_list(match["step"])
    multiply = match["op"] != "+"
    if multiply and step < 2:
        raise ValueError(f"{part!r} has a factor of {step}; allowed: 2 or more")
    size = begin
    while size <= end:
        yield size
        size = size * step if multiply else size + step


def _one_of_list(part: str) -> int:
    try:
        return size_bytes(part)
    except ValueError as error:
        said = str(error) if str(error) != SIZE_FORM else f"is not a size; allowed: {SIZES_FORM}"
        raise ValueError(f"{part.strip()!r} {said}") from None


def format_bandwidth(bits_per_second: float) -> str:
    """`400Gbps` or `1.8Tbps` for bits per second."""
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if bits_per_second >= factor:
            return f"{bits_per_second / factor:.6g}{name}bps"
    return f"{bits_per_second:.6g}bps"
