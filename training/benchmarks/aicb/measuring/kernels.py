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


def choose(args: WorkloadArgs, precision: str, attention: str, libraries: Libraries) -> dict[str, Choice]:
    """The kernel of each kind on this device. attention: one of ATTENTIONS or "auto"; precision: bf16, fp16 or fp32.

    Raises:
        UnusableSettingsError: the attention that is asked for cannot be used here.
    """
    query, value = LayerShapes(args).head_sizes

    def flash() -> str | None:
        if query != value:
            return f"needs values of the queries' size {query}, found {value}"
        return against_flash_attention(query, precision, libraries)

    def engine() -> str | None:
        return libraries.against("transformer_engine") or against_library(TRANSFORMER_ENGINE, libraries)

    def apex() -> str | None:
        return libraries.against("apex") or against_library(APEX, libraries)

    def grouped() -> str | None:
        if precision != "bf16":
            return f"needs bf16, found {precision}"
        return libraries.against("grouped_mm")

    obstacles = {TRANSFORMER_ENGINE: engine, FLASH_ATTENTION: flash, APEX: apex, GROUPED_MM: grouped}
    return {
        "attention": first_usable("attention", attention, ATTENTIONS, obstacles),
        "norm": first_usable("norm", AUTO, (TRANSFORMER_ENGINE, APEX, TORCH), obstacles),
        "experts": first_usable("experts", AUTO, (GROUPED_MM, BATCHED), obstacles),
        # As the trainer ranks them: torch's own fused Adam is one kernel for many tensors.
        "optimizer": first_usable("optimizer", AUTO, ("fused",), obstacles),
    }
