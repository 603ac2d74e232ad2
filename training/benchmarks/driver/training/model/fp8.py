"""Has the matrix products of a model's blocks computed in 8-bit floating point, by torchao."""

import dataclasses
import importlib
import importlib.metadata
import importlib.util
from typing import Any

import torch
from torch import nn

from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.usage import UnusableSettingsError

LIBRARY = "torchao"


def against(device: torch.device) -> str | None:
    """The reason why a rank on the device computes nothing in FP8, None if it does."""
    if importlib.util.find_spec(LIBRARY) is None:
        return f"{LIBRARY} is not installed"
    return refusal(device)


def refusal(device: torch.device) -> str | None:
    """The reason why the device computes nothing in FP8, None if it does: the host emulates it."""
    return accelerators(device).fp8_refusal(device) if is_accelerator(device) else None


def how(device: torch.device) -> str:
    """By what, in words: the library's version, and whether float32 stands in for units that the processors lack."""
    version = f"{LIBRARY} {importlib.metadata.version(LIBRARY)}"
    return version if is_accelerator(device) else f"{version}, emulated: {device} has no such units"


def convert(model: BenchmarkModel, recipe: str, device: torch.device) -> None:
    """Have every linear layer of the blocks round both operands of its three products to FP8, scaled as torchao's
    `recipe` says. Weights keep their names, shapes and type; what is outside of the blocks stays as it is.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 3; the output is not converted, as in
    torchtitan.

    Raises:
        UnusableSettingsError: the library does not work with this torch.
    """
    try:
        torchao: Any = importlib.import_module(f"{LIBRARY}.float8")
    except (ImportError, AttributeError, RuntimeError) as error:
        raise UnusableSettingsError(f"fp8 = {recipe!r}: {LIBRARY} does not import: {error}") from error
    config = torchao.Float8LinearConfig.from_recipe_name(recipe)
    config = dataclasses.replace(config, emulate=not is_accelerator(device))
    inside = {id(layer) for block in model.blocks() for layer in block.modules()}

    def is_converted(layer: nn.Module, _name: str) -> bool:
        return id(layer) in inside

    torchao.convert_to_float8_training(model, config=config, module_filter_fn=is_converted)
