"""Parses message sizes: `8..256M x2`, `1M`, `4K, 1M..64M x4`, `1M..8M +1M`."""

import re
from collections.abc import Iterator

# K, M and G are binary, as in nccl-tests' -b and -e.
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(?P<number>[0-9]+)\s*(?P<unit>[kKmMgG]?)(?:i?[bB])?")
_RANGE = re.compile(r"(?P<begin>[^.+x*]+?)\s*\.\.\s*(?P<end>[^.+x*]+?)\s*(?:(?P<op>[x*+])\s*(?P<step>[^.+x*]+))?")
_EXAMPLES = (
    "a size such as 64, 4K, 1M or 2G (binary), a range such as 8..256M x2 or 1M..8M +1M, or a comma list of these"
)
_DECIMAL = re.compile(r"[0-9]+\s*[kKmMgG][bB]")
MAX_SIZES = 4096


def parse_size(text: str) -> int:
    """Bytes of one size: digits with K, M or G for 2**10, 2**20, 2**30 (KiB, MiB and GiB are the same).

    Raises:
        ValueError: the text has another form. KB, MB and GB are refused, since they may mean powers of 1000 or of 1024.
    """
    stripped = text.strip()
    if _DECIMAL.fullmatch(stripped):
        raise ValueError(
            f"{stripped!r} leaves open whether 1000 or 1024 is meant; write {stripped[:-1]} or {stripped[:-1]}iB"
        )
    match = _SIZE.fullmatch(stripped)
    if match is None:
        raise ValueError(f"{stripped!r} is not a size; allowed: {_EXAMPLES}")
    size = int(match["number"]) * _UNITS[match["unit"].upper()]
    if size == 0:
        raise ValueError(f"{stripped!r} is a size of zero bytes; a message has at least 1")
    return size


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
        if size % _UNITS[unit] == 0 and size:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


def _expand(part: str) -> Iterator[int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        yield parse_size(part)
        return
    begin, end = parse_size(match["begin"]), parse_size(match["end"])
    if end < begin:
        raise ValueError(f"{part!r} ends below its begin; allowed: begin..end with begin <= end")
    step = 2 if match["step"] is None else parse_size(match["step"])
    multiply = match["op"] != "+"
    if multiply and step < 2:
        raise ValueError(f"{part!r} has a factor of {step}; allowed: 2 or more")
    size = begin
    while size <= end:
        yield size
        size = size * step if multiply else size + step
