"""The arithmetic of the original's C++ program: 32-bit floats, unsigned 64-bit integers, and how it prints them."""

from math import inf, isnan, nan
from struct import pack, unpack

WRAP = 1 << 64
_SIGN = 1 << 63
_LARGEST_FLOAT32 = 3.4028235677973366e38
KIBI3 = float(1 << 30)


def float32(number: float) -> float:
    """The number as a 32-bit float holds it, in any unit."""
    if number != number or abs(number) >= _LARGEST_FLOAT32:
        return number if number != number else inf if number > 0 else -inf
    return float(unpack("f", pack("f", number))[0])


def unsigned(number: float) -> int:
    """A number of any unit as x86-64 code makes an unsigned 64-bit integer of it, C++ leaving that undefined or not."""
    if isnan(number):
        return _SIGN
    if number >= _SIGN:
        rest = number - _SIGN
        return 0 if rest >= _SIGN else int(rest) ^ _SIGN
    return _SIGN if number < -_SIGN else int(number) % WRAP


def quotient(dividend: float, divisor: float) -> float:
    """The quotient with C++'s infinities and NaN."""
    if divisor:
        return dividend / divisor
    return inf if dividend > 0 else -inf if dividend < 0 else nan


def whole(number: float) -> str:
    """Without decimals, as %.0f prints it."""
    return "-nan" if isnan(number) else f"{number:.0f}"


def decimals(number: float) -> str:
    """With two decimals, as %.2f prints it."""
    return "-nan" if isnan(number) else f"{number:.2f}"
