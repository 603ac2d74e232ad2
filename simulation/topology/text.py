"""Writes a template as SimAI's topology text, a segment at a time; millions of links take a second."""

from collections.abc import Iterator
from itertools import chain, repeat

from simulation.topology.shape import FabricShape

# SimAI's format: a line of counts, a line of switch ids, a line per link.
GPUS_AT_ONCE = 4096
LEAVES_AT_ONCE = 256


def chunks(shape: FabricShape) -> Iterator[bytes]:
    """The file in pieces of at most some 100 kB per 1000 links."""
    yield _head(shape)
    step = max(GPUS_AT_ONCE // shape.gpus_per_server, 1) * shape.gpus_per_server
    for first in range(0, shape.gpus, step):
        yield _gpu_links(shape, range(first, min(first + step, shape.gpus)))
    for tor in range(shape.tors):
        yield from _uplinks(shape, tor)


def _head(shape: FabricShape) -> bytes:
    switches = range(shape.gpus, shape.nodes)
    counts = (
        f"{shape.nodes} {shape.gpus_per_server} {shape.nvswitches} {shape.leaves + shape.spines} {shape.links} "
        f"{shape.gpu_type}\n"
    )
    return f"{counts}{' '.join(map(str, switches))} \n".encode()


def _gpu_links(shape: FabricShape, gpus: range) -> bytes:
    """The links of some whole servers' GPUs: to the server's NVSwitches, then to a leaf of each set."""
    per_server, rails = shape.nvswitches_per_server, shape.rails
    switch_of = [
        shape.gpus + server * per_server
        for server in range(gpus.start // shape.gpus_per_server, gpus.stop // shape.gpus_per_server)
    ]
    columns: list[list[int]] = [
        list(chain.from_iterable(repeat(switch + number, shape.gpus_per_server) for switch in switch_of))
        for number in range(per_server)
    ]
    segment_gpus, first_leaf = shape.segment_gpus, shape.first_leaf
    leaf = [first_leaf + gpu // segment_gpus * rails + (gpu % rails) for gpu in gpus]
    columns += [[number + tor * shape.leaves_per_set for number in leaf] if tor else leaf for tor in range(shape.tors)]
    line = f"%d %d {shape.nvlink}\n" * per_server + f"%d %d {shape.nic}\n" * shape.tors
    numbers = [0] * (2 * len(columns) * len(gpus))
    for number, column in enumerate(columns):
        numbers[2 * number :: 2 * len(columns)] = gpus
        numbers[2 * number + 1 :: 2 * len(columns)] = column
    return (line * len(gpus) % tuple(numbers)).encode()


def _uplinks(shape: FabricShape, tor: int) -> Iterator[bytes]:
    """The links of a set's leaves to the spines; only the leaf's id differs from leaf to leaf."""
    of_one = "".join(f"L {spine} {shape.uplink}\n" for spine in shape.spines_of_set(tor)).replace("L ", "\0 ")
    begin = shape.first_leaf + tor * shape.leaves_per_set
    for first in range(begin, begin + shape.leaves_per_set, LEAVES_AT_ONCE):
        last = min(first + LEAVES_AT_ONCE, begin + shape.leaves_per_set)
        yield "".join(of_one.replace("\0", str(leaf)) for leaf in range(first, last)).encode()
