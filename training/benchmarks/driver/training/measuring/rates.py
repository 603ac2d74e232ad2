"""Derives MFU from the times of a run. Needs no torch."""

from dataclasses import dataclass

from training.benchmarks.driver.training.settings.settings import TrainingConfig
from vendors.datasheets import datasheet

_TERA = 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Seconds since training began: `raw` all, then without evaluations and checkpoints, then forward to update."""

    raw: float
    no_eval: float
    pure_compute: float


def peak_of(config: TrainingConfig, device_name: str | None) -> float | None:
    """Peak rate of one accelerator of this name in 1e12 operations/s for the run's precision; None if it is unknown."""
    if config.peak_tflops is not None or device_name is None:
        return config.peak_tflops
    sheet = datasheet(device_name)
    if sheet is None:
        return None
    if config.fp8_recipe() is not None:
        return sheet.tflops.get("fp8")
    # Without TF32 units, as on V100, float32 products take the other cores whatever the setting allows.
    with_tf32 = config.precision == "fp32" and config.tf32 and "tf32" in sheet.tflops
    return sheet.tflops.get("tf32" if with_tf32 else config.precision)


def model_flops_utilization(
    flops_per_sample: float, *, samples: int, seconds: float, world_size: int, peak: float | None
) -> float | None:
    """MFU: fraction (0 to 1) of the peak of all devices that the model's own operations achieve; None without a peak.

    `flops_per_sample`: operations; `seconds` of `samples` of all ranks; `peak` of a device in 1e12 operations/s.

    Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B.
    """
    if peak is None or not samples:
        return None
    return flops_per_sample * samples / seconds / (world_size * peak * _TERA)


def flops_without_attention(config: TrainingConfig, parameters: int, tokens: float) -> float:
    """Floating-point operations for one sample by the convention "6 N": six per parameter and token, no attention.

    `parameters` is their number in the model; the setting nominal_parameters takes its place, and experts that a token
    is not sent to do not count. A sample has `tokens` tokens.

    Source: Kaplan et al., "Scaling Laws for Neural Language Models" (2020), section 2.1; FlagPerf's LLaMA counts so,
    with 7e9 parameters.
    """
    return 6 * config.active_parameters(parameters) * tokens
