"""Reads numbers and ranges such as '5..9 20': steps or ranks of a run. Needs no torch."""

_LONGEST = 1000  # numbers of a range


def numbers_of(text: int | str, *, least: int) -> tuple[int, ...]:
    """The numbers that a number or a text such as "5..9 20" names, in order.

    Raises:
        ValueError: it is no such text, or a number is below `least`.
    """
    found: set[int] = set()
    for part in str(text).split() or [""]:
        first, dots, last = part.partition("..")
        ends = (first, last) if dots else (first, first)
        if not all(end.isascii() and end.isdigit() for end in ends):
            raise ValueError(f"{part!r} is no number; allowed: numbers and ranges, as in '5..9 20'")
        begin, end = map(int, ends)
        if not least <= begin <= end < begin + _LONGEST:
            raise ValueError(f"{part!r}; allowed: from {least} on, ascending, up to {_LONGEST} numbers")
        found.update(range(begin, end + 1))
    return tuple(sorted(found))
