"""Defines the interface of a training benchmark, and checks its data and weights before a device is taken."""

import argparse
import pickle
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor
from torch.serialization import safe_globals

from protocol.case_config import ConfigT
from training.benchmarks.driver.training.data import hugging_face
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.inputs import check_numbers, check_shapes, data_folder
from training.benchmarks.driver.training.data.loader import SampleSet
from training.benchmarks.driver.training.model.checkpoint_reader import refused
from training.benchmarks.driver.training.model.kernels import Kernels
from training.benchmarks.driver.training.model.model import Batch, BenchmarkModel, parameter_count
from training.benchmarks.driver.training.settings.settings import AUTO, TrainingConfig
from training.benchmarks.driver.workload.usage import UnusableSettingsError

# Types that DeepSpeed and Megatron save beside the weights: arguments, and the states of numpy's generators, whose
# functions numpy 1 kept in another module.
_BESIDE_WEIGHTS: list[Any] = [
    argparse.Namespace,
    np.ndarray,
    np.dtype,
    *(getattr(np.dtypes, name) for name in np.dtypes.__all__),
    *(
        (value.__reduce__()[0], f"numpy.{core}.multiarray.{name}")
        for value, name in ((np.zeros(0), "_reconstruct"), (np.float64(0), "scalar"))
        for core in ("core", "_core")
    ),
]


_WEIGHTS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSets:
    """The training set and the evaluation set of a run, and the files that each is read from; if the latter is empty,
    nothing is evaluated. `other_files` are read for both.
    """

    train: SampleSet
    evaluation: SampleSet
    train_files: tuple[Path, ...] = ()
    evaluation_files: tuple[Path, ...] = ()
    other_files: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        return (*self.train_files, *self.evaluation_files, *self.other_files)


class DataModule(Protocol):
    """The functions of a module that makes a benchmark's data; see TrainingBenchmark's methods."""

    def synthetic(self, config: Any) -> DataSets:
        """Data that the model can learn, made of `config.seed` alone."""
        ...

    def open_files(self, config: Any, data_dir: Path) -> DataSets:
        """The real data of a folder; samples are read when they are needed."""
        ...


class TrainingBenchmark(ABC, Generic[ConfigT]):
    """A model, its data and its metric; the trainer provides everything else.

    `throughput_unit` is part of the names of FINISHED's throughputs (FlagPerf: sps for BERT, ips for the others).
    `attentions` lists the implementations of attention that the model can use, the best first. `step_names` and
    `final_names` map additional names in STEP_END and FINISHED, which FlagPerf's readers know, to the metric that they
    stand for. `published_md5` has the md5 that FlagPerf publishes of data files, by path in the data folder. `counted`
    are the tensors of a batch that `work_of` reads; none: every sample has tokens_per_sample and flops_per_sample.
    `training_facts` are the published facts that weights may have been trained with otherwise. `data` is the module
    that makes the data; without it a benchmark has `synthetic_data` and `open_files` of its own.
    """

    name: ClassVar[str]
    data: DataModule | None = None
    throughput_unit: ClassVar[str] = "ips"
    attentions: ClassVar[tuple[str, ...]] = ("sdpa", "eager")
    counted: ClassVar[tuple[str, ...]] = ()
    step_names: ClassVar[Mapping[str, str]] = {}
    final_names: ClassVar[Mapping[str, str]] = {}
    published_md5: ClassVar[Mapping[str, str]] = {}
    training_facts: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        inherited = [
            name
            for name in ("synthetic_data", "open_files")
            if cls.data is None and getattr(cls, name) is getattr(TrainingBenchmark, name)
        ]
        if inherited:
            raise TypeError(f"{cls.__name__} makes no data: it has neither `data` nor {' and '.join(inherited)}")

    @abstractmethod
    def build_model(self, config: ConfigT) -> BenchmarkModel:
        """The model; called in the context of the meta device."""

    def synthetic_data(self, config: ConfigT) -> DataSets:
        """Data with a structure that the model can learn, generated from config.seed alone."""
        assert self.data is not None, "__init_subclass__ refuses it"
        return self.data.synthetic(config)

    def open_files(self, config: ConfigT, data_dir: Path) -> DataSets:
        """The real data. Opens every file and reads its headers; samples are read when they are needed.

        Raises:
            DataError: a file is missing or broken.
        """
        assert self.data is not None, "__init_subclass__ refuses it"
        return self.data.open_files(config, data_dir)

    def work_of(self, config: ConfigT, batches: Sequence[Batch]) -> tuple[int, int | Tensor, int | Tensor]:
        """Number of samples, of tokens and of floating-point operations (forward and backward, as flops_per_sample
        counts them) of all `batches` together without their padding, 0-d where only the device knows it. The batches
        have the tensors `counted`, of shape (samples, ...).
        """
        raise NotImplementedError(f"{type(self).__name__} counts {', '.join(self.counted)}, and has no work_of")

    def weights_of(self, config: ConfigT, state: Any) -> Any:
        """The weights by this model's names in what torch.load found; the default unpacks a dict around them."""
        nested = [state[key] for key in ("module", "model", "state_dict") if isinstance(state.get(key), dict)]
        return nested[0] if nested else state

    def published_facts(self, config: ConfigT) -> Mapping[str, JsonValue]:
        """Hugging Face's config.json of this model with these settings; nothing for models without such a form."""
        return {}

    def published_names(self, config: ConfigT) -> hugging_face.Parts:
        """The names in Hugging Face's files of parameters that have others here, or are several tensors there."""
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedTraining:
    """State before the process group opens: data, the model without storage, initial weights (if any), all files."""

    data: DataSets
    model: BenchmarkModel
    kernels: Kernels
    weights: Mapping[str, Tensor] | None
    files: tuple[Path, ...] = ()


def prepare(
    benchmark: TrainingBenchmark[Any], config: TrainingConfig, data_dir: Path | None, kernels: Kernels
) -> PreparedTraining:
    """Open data and weights before any device is taken.

    Raises:
        UnusableSettingsError: settings or files cannot be used (DataError for a file); no device has been taken yet.
    """
    if config.compile_backend not in (None, AUTO):
        with_those_for_debugging = torch.compiler.list_backends(exclude_tags=())
        if config.compile_backend not in with_those_for_debugging:
            raise UnusableSettingsError(
                f"compile_backend = {config.compile_backend!r}: torch {torch.__version__} has no such backend;"
                f" allowed: None, 'auto', {', '.join(map(repr, torch.compiler.list_backends()))}"
            )
    folder = data_folder(config, data_dir)
    config = config.model_copy(update={"attention": kernels.attention.used})
    data = benchmark.synthetic_data(config) if folder is None else benchmark.open_files(config, folder)
    with torch.device("meta"):
        model = benchmark.build_model(config)
    weights, files = None, data.files
    if config.init_checkpoint is not None:
        path = (data_dir or Path()) / config.init_checkpoint
        weights = _weights(benchmark, config, model, path)
        files = (*files, *(hugging_face.files_of(path) if hugging_face.is_hugging_face(path) else [path]))
    if config.save_weights is not None:
        hugging_face.refuse_folder(Path(config.save_weights))
    return PreparedTraining(data=data, model=model, kernels=kernels, weights=weights, files=files)


def check_names(benchmark: TrainingBenchmark[Any], config: TrainingConfig, metrics: Mapping[str, float]) -> None:
    """Check that the first evaluation has found every metric that is used later, in the units of the model.

    Raises:
        UnusableSettingsError: a target, step_names or final_names names another; the message has those that there are.
    """
    used = {f"the target {target}": target.metric for target in config.targets()}
    if metrics:
        used |= {f"step_names[{name!r}]": metric for name, metric in benchmark.step_names.items()}
        used |= {f"final_names[{name!r}]": metric for name, metric in benchmark.final_names.items()}
    there = ", ".join(sorted(metrics)) or "none: nothing is evaluated"
    problems = [f"{place} is about {metric!r}" for place, metric in used.items() if metric not in metrics]
    if problems:
        raise UnusableSettingsError(f"{'; '.join(problems)}; the metrics of {benchmark.name} are {there}")


def checked_parameters(model: BenchmarkModel, config: TrainingConfig) -> int:
    """The model's number of parameters, shared ones once.

    Raises:
        UnusableSettingsError: nominal_parameters is of another model.
    """
    found, nominal = parameter_count(model), config.nominal_parameters
    if nominal is not None and not 0.9 < nominal / found < 1.1:
        raise UnusableSettingsError(
            f"nominal_parameters = {nominal}: the model has {found}; allowed: None, or within 10 % of these"
        )
    return found


def _weights(
    benchmark: TrainingBenchmark[Any], config: TrainingConfig, model: BenchmarkModel, path: Path
) -> Mapping[str, Tensor]:
    """The file's tensors by the model's names, after a check of names and shapes."""
    if not path.exists():
        raise DataError(path, "no such file (init_checkpoint)")
    try:
        state = benchmark.weights_of(config, _published(benchmark, config, path))
        found = {str(name): tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    except (RuntimeError, ValueError, KeyError, AttributeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise DataError(path, f"no checkpoint of {benchmark.name} (init_checkpoint): {refused(error)}") from error
    except hugging_face.BrokenWeightsError as error:
        raise DataError(error.path, f"{error} (init_checkpoint)") from error
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    parts = benchmark.published_names(config)
    weights = hugging_face.Joined(found, {} if parts.keys() & found.keys() else parts, shapes)
    wanted = weights.file_shapes()
    check_shapes(path, {name: tuple(tensor.shape) for name, tensor in found.items()}, wanted)
    check_numbers(path, {name: str(found[name].dtype).removeprefix("torch.") for name in wanted}, _WEIGHTS)
    return weights


def _published(benchmark: TrainingBenchmark[Any], config: TrainingConfig, path: Path) -> Any:
    """The content of a file of torch.save, or all tensors of Hugging Face's files after a look at config.json."""
    if not hugging_face.is_hugging_face(path):
        return _saved(path)
    mine = benchmark.published_facts(config)
    theirs = hugging_face.model_facts(path)
    differing = [
        f"{name} is {theirs[name]!r}, the case has {value!r}"
        for name, value in mine.items()
        if name in theirs and theirs[name] != value and name not in benchmark.training_facts
    ]
    if differing:
        raise hugging_face.BrokenWeightsError(path, f"is of another model: {'; '.join(differing)}")
    return hugging_face.read(path)


def _saved(path: Path) -> Any:
    """The content of a file from torch.save, on the CPU; nothing in the file is executed.

    The file is mapped into memory; files of torch before 1.6, as published in 2020, are no archives and are read.
    """
    with safe_globals(_BESIDE_WEIGHTS):
        return torch.load(path, map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=True)
