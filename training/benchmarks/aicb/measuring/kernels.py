"""Chooses the kernels of AIOB as the trainer does: Transformer Engine, flash-attn, apex where they import and fit."""

from training.benchmarks.aicb.measuring.modules import APEX, GROUPED_MM, TRANSFORMER_ENGINE
from training.benchmarks.aicb.measuring.parts import UNFUSED, LayerShapes
from training.benchmarks.driver.training.model.kernels import (
    Choice,
    Libraries,
    against_flash_attention,
    against_library,
    first_usable,
)
from training.benchmarks.driver.training.settings.settings import AUTO, FLASH_ATTENTION
from workloads.job.parameters import WorkloadArgs

SDPA, TORCH, BATCHED = "sdpa", "torch", "bmm"
ATTENTIONS = (TRANSFORMER_ENGINE, FLASH_ATTENTION, SDPA, UNFUSED)
_GROUPED_CAPABILITY = (9, 0)


def choose(args: WorkloadArgs, precision: str, attention: str, libraries: Libraries) -> dict[str, Choice]:
    """The kernel of each kind on this device. attention: one of ATTENTIONS or "auto"; precision: bf16, fp16 or fp32.

    Raises:
        UnusableSettingsError: the attention that is asked for cannot be used here.
    """
    query, value = LayerShapes(args).head_sizes
    on_cuda = libraries.device.type == "cuda"
    only_cuda = None if on_cuda else f"needs a CUDA device, this one is {libraries.device}"

    def flash() -> str | None:
        if query != value:
            return f"needs values of the queries' size {query}, found {value}"
        return against_flash_attention(query, precision, libraries)

    def engine() -> str | None:
        return only_cuda or against_library(TRANSFORMER_ENGINE, libraries)

    def apex() -> str | None:
        return only_cuda or against_library(APEX, libraries)

    def grouped() -> str | None:
        if only_cuda or precision != "bf16":
            return only_cuda or f"needs bf16, found {precision}"
        capability = libraries.capability()
        if capability < _GROUPED_CAPABILITY:
            return f"needs compute capability 9.0, found {capability[0]}.{capability[1]}"
        return None

    obstacles = {TRANSFORMER_ENGINE: engine, FLASH_ATTENTION: flash, APEX: apex, GROUPED_MM: grouped}
    return {
        "attention": first_usable("attention", attention, ATTENTIONS, obstacles),
        "norm": first_usable("norm", AUTO, (TRANSFORMER_ENGINE, APEX, TORCH), obstacles),
        "experts": first_usable("experts", AUTO, (GROUPED_MM, BATCHED), obstacles),
        # As the trainer ranks them: torch's own fused Adam is one kernel for many tensors.
        "optimizer": first_usable("optimizer", AUTO, ("fused",), obstacles),
    }
