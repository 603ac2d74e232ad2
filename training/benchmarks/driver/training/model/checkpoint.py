"""Checkpoints by torch.distributed.checkpoint: every rank writes its part; a complete folder gets its final name."""

import json
import os
import pickle
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from common.reading import read_bounded
from training.benchmarks.driver.training.model.checkpoint_reader import SafePlanner, SafeReader
from training.benchmarks.driver.training.model.parallel import ParallelModel
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.usage import UnusableSettingsError

SCHEMA_VERSION = 1
_FACTS, _FACTS_BYTES = "run.json", 4 << 20
_NAME = re.compile(r"step-(\d{8})")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Checkpoints:
    """The checkpoints of one folder: step-00000100/ holds the state after step 100 and run.json, the run's identity.

    `identity` must be equal in a run that resumes from it: the model's sizes and what determines the order of the data.
    `defaults` stand for what a checkpoint lacks: it is older than the setting, whose default is what was done before.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], defaults: Mapping[str, Any] = _NOTHING) -> None:
        self._folder = folder
        self._identity, self._defaults = identity, defaults

    def open(self, *, resume: bool) -> Path | None:
        """The checkpoint to resume from, or None to start from step 0.

        Raises:
            UnusableSettingsError: the folder cannot be written, or holds checkpoints of another run, whose names a new
                run would reuse.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnusableSettingsError(f"checkpoint_dir: {self._folder}: cannot be made: {error}") from error
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise UnusableSettingsError(f"checkpoint_dir: {self._folder}: cannot be written")
        latest = self.latest()
        if latest is not None and not resume:
            raise UnusableSettingsError(
                f"checkpoint_dir: {self._folder} holds {latest.name} of another run; go on with resume = True, or"
                " choose another folder"
            )
        return latest

    def check_shared(self) -> None:
        """Check that all ranks see the same folder by a file that rank 0 writes for a moment; all ranks call it.

        Raises:
            UnusableSettingsError: some ranks see another folder; the message names them.
        """
        names = [uuid.uuid4().hex]
        dist.broadcast_object_list(names)
        mark = self._folder / f".mark-{names[0]}"
        if dist.get_rank() == 0:
            mark.touch()
        dist.barrier()
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, mark.exists())
        if dist.get_rank() == 0:
            mark.unlink()
        blind = ", ".join(str(rank) for rank, is_there in enumerate(found) if not is_there)
        if blind:
            raise UnusableSettingsError(
                f"checkpoint_dir: {self._folder}: rank(s) {blind} do not see there what rank 0 writes; expected one"
                " folder for all ranks, on several hosts in a shared file system"
            )

    def latest(self) -> Path | None:
        """The checkpoint with the highest step, or None."""
        found = [path for path in self._folder.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir()]
        return max(found, default=None, key=lambda path: path.name)

    def save(self, step: int, model: ParallelModel, optimizer: Optimizer, precision: Precision) -> Path:
        """Write the state after `step`; all ranks call it. The folder gets its final name once it is complete."""
        final = self._folder / f"step-{step:08d}"
        partial = final.with_name(final.name + ".partial")
        save(_state(model, optimizer, precision), checkpoint_id=partial)
        if dist.get_rank() == 0:
            facts = {"schema_version": SCHEMA_VERSION, "step": step, "identity": dict(self._identity)}
            (partial / _FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            partial.rename(final)
        dist.barrier()
        return final

    def load(self, path: Path, model: ParallelModel, optimizer: Optimizer, precision: Precision) -> int:
        """Restore the state of `path`; returns its step. All ranks call it.

        Raises:
            UnusableSettingsError: the checkpoint belongs to other settings, which the message names, or is broken.
        """
        step = self._read_facts(path)
        state = _state(model, optimizer, precision)
        try:
            load(state, storage_reader=SafeReader(path), planner=SafePlanner())
        except (CheckpointException, OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            raise UnusableSettingsError(f"resume: {path}: broken checkpoint: {_why(error)}") from error
        set_state_dict(
            model.module,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_options(model),
        )
        precision.scaler.load_state_dict(state["scaler"])
        _set_random_state(state[_random_key()], model)
        return step

    def _read_facts(self, path: Path) -> int:
        file = path / _FACTS
        try:
            facts: Any = json.loads(read_bounded(file, _FACTS_BYTES))
            step, identity = int(facts["step"]), {**self._defaults, **facts["identity"]}
            if facts["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version is {facts['schema_version']!r}; expected {SCHEMA_VERSION}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnusableSettingsError(f"resume: {file}: broken checkpoint: {error!r}") from error
        differing = [
            f"{key} was {identity.get(key)!r}, is {value!r}"
            for key, value in self._identity.items()
            if identity.get(key) != value
        ]
        if differing:
            raise UnusableSettingsError(f"resume: {path} is of other settings: {'; '.join(differing)}")
        return step


def _why(error: BaseException) -> str:
    """The mistake of the first rank that says one, without the stack."""
    failures = error.failures if isinstance(error, CheckpointException) else {}
    return next((f"rank {rank}: {each}" for rank, (each, _) in sorted(failures.items())), str(error))


def _state(model: ParallelModel, optimizer: Optimizer, precision: Precision) -> dict[str, Any]:
    weights, moments = get_state_dict(model.module, optimizer, options=_options(model))
    return {
        "model": weights,
        "optimizer": moments,
        "scaler": precision.scaler.state_dict(),
        _random_key(): _random_state(model),
    }


def _options(model: ParallelModel) -> StateDictOptions:
    """The stages of a pipeline have different parameters in a group of the optimizer: each is kept under its name."""
    return StateDictOptions(flatten_optimizer_state_dict=model.pipeline is not None)


def _random_key() -> str:
    """Key of this rank's generator state: every rank has its own."""
    return f"random.rank{dist.get_rank()}"


def _random_state(model: ParallelModel) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    device = _device(model)
    if is_accelerator(device):
        state[device.type] = accelerators(device).random_state(device)
    return state


def _set_random_state(state: dict[str, Tensor], model: ParallelModel) -> None:
    torch.set_rng_state(state["cpu"])
    device = _device(model)
    if is_accelerator(device) and device.type in state:
        accelerators(device).set_random_state(state[device.type], device)


def _device(model: ParallelModel) -> torch.device:
    return next(model.module.parameters()).device
