"""Makes a setting of each parameter of the generator, so that a case states a workload as `generate` does. No torch."""

from typing import TYPE_CHECKING

from protocol.case_config import CaseConfig
from workloads.job.description import model
from workloads.job.parameters import KINDS

OF_THE_RUN = frozenset({"world_size", "pp_rank", "gpu_type", "enable_visual", "workload_only"})
"""Parameters that the run itself determines, or that change no row."""
NAMES = tuple(name for name in KINDS if name not in OF_THE_RUN)

if TYPE_CHECKING:
    GeneratorSettings = CaseConfig
else:
    GeneratorSettings = model(
        "GeneratorSettings",
        CaseConfig,
        NAMES,
        "The parameters of a generated workload; None: the preset's value, else AICB's default.",
        __name__,
    )
