"""Puts a vendor's own layers and optimizer (vendors/extern.py) in the place of ours; the parameters stay the same."""

from dataclasses import replace

from torch.optim import Optimizer

from training.benchmarks.driver.training.model import optimizers
from training.benchmarks.driver.training.model.kernels import Choice, Kernels
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.settings.settings import AUTO, TrainingConfig
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.extern import CONVERT_MODEL, CREATE_OPTIMIZER, FOLDER, Extern


def with_optimizer(chosen: Kernels, extern: Extern) -> Kernels:
    """The kernels of a run whose optimizer the vendor makes, if it does; the plan refuses a wish for another."""
    if CREATE_OPTIMIZER not in extern.functions:
        return chosen
    made = Choice(asked=AUTO, used=FOLDER, why=f"{CREATE_OPTIMIZER} of {next(iter(extern.files))}")
    return replace(chosen, optimizer=made)


def converted(model: BenchmarkModel, config: TrainingConfig, extern: Extern) -> BenchmarkModel:
    """The model, on the meta device, with the vendor's layers, if it has any.

    Raises:
        UnusableSettingsError: another model came back: weights are told and filled by name and shape.
    """
    convert = extern.function(CONVERT_MODEL)
    if convert is None:
        return model
    before = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    made = convert(model, config)
    if not isinstance(made, BenchmarkModel):
        raise UnusableSettingsError(f"{extern.entry}: {CONVERT_MODEL} returned {type(made).__name__}, not the model")
    after = {name: tuple(parameter.shape) for name, parameter in made.named_parameters()}
    if before != after:
        names = sorted({name for name, _ in before.items() ^ after.items()})
        raise UnusableSettingsError(
            f"{extern.entry}: {CONVERT_MODEL} changed parameters: {', '.join(names[:5])}; names and shapes must stay"
        )
    return made


def optimizer_of(model: BenchmarkModel, config: TrainingConfig, implementation: str, extern: Extern) -> Optimizer:
    """The optimizer over all parameters of the model: the vendor's, else our `implementation` (see optimizers.build).

    Raises:
        UnusableSettingsError: the vendor's is none, or has other parameters.
    """
    create = extern.function(CREATE_OPTIMIZER)
    if create is None:
        return optimizers.build(model, config, implementation)
    made = create(optimizers.groups_of(model, config), config)
    if not isinstance(made, Optimizer):
        raise UnusableSettingsError(f"{extern.entry}: {CREATE_OPTIMIZER} returned {type(made).__name__}, no optimizer")
    taken = {id(parameter) for group in made.param_groups for parameter in group["params"]}
    if taken != {id(parameter) for parameter in model.parameters()}:
        raise UnusableSettingsError(f"{extern.entry}: {CREATE_OPTIMIZER} leaves parameters out, or adds some")
    return made
