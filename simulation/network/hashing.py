"""Addresses of nodes and the hash by which a flow chooses among equal next hops, both as SimAI's ns-3 has them.

For numbers and arrays of them; numba compiles the hash for packets.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray  # for which few flows need not wait

    Word = TypeVar("Word", int, NDArray[Any])  # of whole numbers
else:
    Word = TypeVar("Word")

HOST_SEED = 0x8BADF00D
_MASK = 0xFFFFFFFF


def address(node: Word) -> Word:
    """11.0.0.1 plus the id, of which the lower byte is the third one."""
    found: Word = 0x0B000001 + (node // 256) * 0x10000 + (node % 256) * 0x100
    return found


def hashed(first: Word, second: Word, third: Word, seed: Word) -> Word:
    """MurmurHash3 (32 bits) of three words, or of arrays of them."""
    h = seed
    for word in (first, second, third):
        k = (word * 0xCC9E2D51) & _MASK
        k = ((k << 15) | (k >> 17)) & _MASK
        k = (k * 0x1B873593) & _MASK
        h = h ^ k
        h = ((h << 13) | (h >> 19)) & _MASK
        h = (h * 5 + 0xE6546B64) & _MASK
    h = h ^ 12
    h = h ^ (h >> 16)
    h = (h * 0x85EBCA6B) & _MASK
    h = h ^ (h >> 13)
    h = (h * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)
