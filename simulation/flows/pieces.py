"""Cuts a number of bytes into pieces without losing one."""

LARGEST_UNIT = 16  # bytes: the widest element a collective carries


def unit_bytes(size_bytes: int, pieces: int) -> int:
    """The bytes at whose multiples a buffer of `size_bytes` is cut: a power of two up to 16.

    It is the largest that divides the buffer and leaves each of `pieces` a share, so that elements of up to 16 bytes
    stay whole unless they are fewer than the pieces.
    """
    unit = LARGEST_UNIT
    while unit > 1 and (size_bytes % unit or size_bytes // unit < pieces):
        unit //= 2
    return unit


def cut(size_bytes: int, pieces: int, unit: int = 1) -> list[int]:
    """Bytes of each piece, the larger ones first, by one `unit` at most; `unit` divides `size_bytes`."""
    each, more = divmod(size_bytes // unit, pieces)
    return [(each + 1) * unit] * more + [each * unit] * (pieces - more)


def cut_twice(size_bytes: int, blocks: int, channels: int) -> list[list[int]]:
    """Bytes per block and channel: the buffer is cut into blocks, each block into channels."""
    unit = unit_bytes(size_bytes, blocks * channels)
    return [cut(block, channels, unit) for block in cut(size_bytes, blocks, unit)]
