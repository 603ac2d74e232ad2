"""The measured times of NCCL's collectives inside one server, interpolated over size and number of GPUs.

data/nvlink_times.csv has half of the tables of aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA;
systems/data/*/comm/nccl): at each size one of the types half and int8, in turn. The other half judges the curves, which
are those of half.
"""

from functools import cache
from itertools import accumulate
from math import exp, log, log2
from pathlib import Path
from statistics import median

from common.interpolation import log_place, over_logs
from simulation.analytical.parts import GPUS
from workloads.formats.simai_text import ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from workloads.rows.collectives import SIMULATED, capitals

DATA = Path(__file__).with_name("data") / "nvlink_times.csv"
MEASURED_AS = {  # a part that was not measured is the one of its generation at another NVLink bandwidth
    "A100": "A100", "A800": "A100", "H100": "H100", "H800": "H100", "H20": "H100", "H200": "H200", "B200": "B200",
    "GB200": "B200",
}  # fmt: skip
OF_CELL = {capitals(name): name for name in SIMULATED} | {ALLTOALL: "alltoall", BROADCAST: "all_gather"}
REDUCING = {OF_CELL[ALLREDUCE], OF_CELL[REDUCESCATTER]}
NEIGHBOURS = 3
PER_DOUBLING_US = 3.0  # assumed: latency of each doubling beyond the largest group measured
_Curve = tuple[tuple[float, ...], tuple[float, ...]]


@cache
def _curves() -> dict[tuple[str, str], dict[int, _Curve]]:
    """By GPU and operation, by number of GPUs: bytes, and the log of us of each, both ascending (noise is levelled)."""
    found: dict[tuple[str, str], dict[int, dict[int, tuple[str, float]]]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines()[1:]:
        gpu, operation, gpus, size, number, us = line.split(",")
        of_gpus = found.setdefault((gpu, operation), {}).setdefault(int(gpus), {})
        of_gpus[int(log2(int(size)))] = number, log(float(us))
    return {
        key: {gpus: _rising(points, key[1] in REDUCING) for gpus, points in its.items()} for key, its in found.items()
    }


def _rising(points: dict[int, tuple[str, float]], reducing: bool) -> _Curve:
    times = _of_halves(points) if reducing else {size: us for size, (_, us) in points.items()}
    sizes = sorted(times)
    return tuple(2.0**size for size in sizes), tuple(accumulate((times[size] for size in sizes), max))


def _of_halves(points: dict[int, tuple[str, float]]) -> dict[int, float]:
    """The time of half precision where int8 was measured: NVSwitches add no int8.

    How much longer int8 takes is read from each size against the mean of its neighbours, which are of the other type;
    the median over up to NEIGHBOURS sizes to each side counts.
    """
    longer = {
        size: (us - (points[size - 1][1] + points[size + 1][1]) / 2) * (1 if number == "int8" else -1)
        for size, (number, us) in points.items()
        if size - 1 in points and size + 1 in points
    }
    return {
        size: us - (number == "int8") * median(longer[at] for at in longer if abs(at - size) <= NEIGHBOURS)
        for size, (number, us) in points.items()
    }


def nvlink_us(gpu_type: str, collective: str, ranks: int, size: int, nvlink: float) -> float | None:
    """Microseconds of a message of `size` bytes among `ranks` GPUs of a server; None where nothing was measured.

    nvlink: GB/s of one GPU's NVLink; else what goes beyond the smallest message's latency is scaled.
    """
    measured, operation = MEASURED_AS.get(gpu_type), OF_CELL.get(collective)
    if measured is None or operation is None:
        return None
    by_gpus = _curves()[measured, operation]
    counts = sorted(by_gpus)
    place, weight = log_place(counts, ranks)
    lower, upper = (by_gpus[counts[at]] for at in (place, place + (weight > 0)))
    time, least = (exp((1 - weight) * _at(lower, number) + weight * _at(upper, number)) for number in (size, 1))
    least = min(least, time)
    carried = (time - least) * GPUS[measured].nvlink / nvlink
    if ranks > counts[-1]:
        carried *= (1 - 1 / ranks) / (1 - 1 / counts[-1])
        least += PER_DOUBLING_US * log2(ranks / counts[-1])
    return least + carried


def place_in_table(gpu_type: str, collective: str, ranks: int, size: float) -> tuple[bool, bool]:
    """Whether those `size` bytes were measured among as many GPUs, and whether they lie within what was measured.

    Raises:
        KeyError: nothing was measured of this GPU type or collective.
    """
    sizes, smallest, largest = _measured_sizes(MEASURED_AS[gpu_type], OF_CELL[collective])
    return size in sizes.get(ranks, ()), min(sizes) <= ranks <= max(sizes) and smallest <= size <= largest


@cache
def _measured_sizes(gpu_type: str, operation: str) -> tuple[dict[int, set[float]], float, float]:
    """By number of GPUs the measured bytes; the fewest and the most of all."""
    found = {gpus: {*sizes} for gpus, (sizes, _) in _curves()[gpu_type, operation].items()}
    every = set[float]().union(*found.values())
    return found, min(every), max(every)


def _at(curve: _Curve, size: int) -> float:
    """The log of us between measured sizes, straight in their logarithms; beyond the last at its bandwidth."""
    sizes, us = curve
    return over_logs(sizes, us, size) + log(max(1.0, size / sizes[-1]))
