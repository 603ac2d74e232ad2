from training.benchmarks.aicb.dialects.base import Deviation

DEVIATIONS: tuple[Deviation, ...] = ()
