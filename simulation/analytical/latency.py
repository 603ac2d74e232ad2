"""The least time of a collective, however small its message.

Up to 128 GPUs the times are SimAI's measured ones, interpolated in the logarithm of the group's size. What lies
outside is assumed: inside one NVLink domain the slope from 4 to 8 GPUs goes on; across servers it grows with each
further GPU as it does from 64 to 128.
"""

from functools import lru_cache
from math import log2

from common.interpolation import over_logs

MEASURED_US = {2: 10.0, 4: 12.0, 8: 15.0, 16: 66.0, 32: 135.0, 64: 200.0, 128: 320.0}
_RANKS, _US = [*MEASURED_US], [*MEASURED_US.values()]
INSIDE_LIMIT, INSIDE_PER_DOUBLING = 8, 3.0
RING_PER_RANK = (320.0 - 200.0) / 64


@lru_cache(1024)
def latency_us(ranks: int, inside_server: bool) -> float:
    """Microseconds of the smallest message among `ranks` GPUs."""
    if ranks <= 1:
        return 0.0
    if inside_server and ranks > INSIDE_LIMIT:
        return MEASURED_US[INSIDE_LIMIT] + INSIDE_PER_DOUBLING * log2(ranks / INSIDE_LIMIT)
    return over_logs(_RANKS, _US, ranks) + RING_PER_RANK * max(0, ranks - _RANKS[-1])
