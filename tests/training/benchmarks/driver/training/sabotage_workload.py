"""Trains tiny models on two real ranks, each time with something broken, and writes what each rank ends with.

    python -m tests.training.benchmarks.driver.training.sabotage_workload <folder>

Leaves <folder>/ended<rank>.json: by the name of the sabotage the message of SystemExit, None for a run that ends well.
And <folder>/curves.json: by name the values of STEP_END of longer runs that are compared with a reference; and
<folder>/identity<rank>.json: what two ranks that are two nodes find of their data folders.
With the variable SABOTAGE it is a rank that driver.launch starts, and breaks that.
"""

import contextlib
import hashlib
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from protocol.perflog import Event, PerfLogger, parse_line
from tests.tiers import NIGHTLY
from tests.training.benchmarks.driver.training.ranks import start
from tests.training.benchmarks.driver.training.tiny import GLOBAL_BATCH, MODELS, config_of, trainer_of
from training.benchmarks.driver.training import trainer
from training.benchmarks.driver.training.data import data_identity, file_hashes
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.loader import SampleSet, TensorSet
from training.benchmarks.driver.training.data.micro_batches import MicroBatches
from training.benchmarks.driver.training.model import optimizers, parallel
from training.benchmarks.driver.training.model.model import LOSS
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.trainer import Evaluator, Trainer
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import ProcessGroup, init
from training.benchmarks.llama.pytorch.model import Llama

VARIABLE = "SABOTAGE"
STEPS, INTERVAL = 12, 4
AT = 6  # the step at which something happens to a rank
SETTINGS: dict[str, Any] = {"max_steps": STEPS, "eval_interval_samples": INTERVAL * GLOBAL_BATCH}
FSDP, TP = {"strategy": "fsdp"}, {"tensor_parallel_size": 2, "train_batch_size": GLOBAL_BATCH}
# Of the first the right one, of the second another file's; the last is not there.
PUBLISHED = {"a": hashlib.md5(b"aaa").hexdigest(), "train.npy": "0" * 32, "none": "1" * 32}
Sabotage = Callable[[], contextlib.AbstractContextManager[object]]


class _NoWrapper(nn.Module):
    """In place of DDP: the replicas know nothing of each other."""

    def __init__(self, module: nn.Module, **_: object) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any) -> Any:
        return self.module(batch)

    def register_comm_hook(self, *_: object) -> None:
        """There is no communication."""


def _is_second() -> bool:
    return dist.get_rank() == 1


def _no_averaging() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(parallel, "DistributedDataParallel", _NoWrapper)


@contextlib.contextmanager
def _no_averaging_unprobed() -> Iterator[None]:
    with _no_averaging(), mock.patch.object(trainer, "unsynchronized", lambda *_: None):
        yield


def _no_averaging_of_shards() -> contextlib.AbstractContextManager[object]:
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

    def own_part(_: Any, output_tensor: Any, input_tensor: Any, group: Any, **__: Any) -> None:
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])

    return mock.patch.object(DefaultReduceScatter, "__call__", own_part)


def _after_a_step(change: Callable[[Trainer], None]) -> Sabotage:
    """Do `change` to the second rank after step AT."""

    def sabotage() -> contextlib.AbstractContextManager[object]:
        step = Trainer.train_step

        def broken(self: Trainer, batches: Any, *, is_logged: bool) -> Any:
            loss = step(self, batches, is_logged=is_logged)
            if _is_second() and self.step == AT:
                change(self)
            return loss

        return mock.patch.object(Trainer, "train_step", broken)

    return sabotage


def _flip_a_bit(of: Trainer) -> None:
    parameter = of.model.module.get_parameter("model.layers.1.mlp.up_proj.weight")
    bits = (parameter.data if not hasattr(parameter, "to_local") else parameter.to_local().data).view(torch.int32)
    bits[3, 5] ^= 1


def _flip_a_norm(of: Trainer) -> None:
    of.model.module.get_parameter("model.norm.weight").data.view(torch.int32)[7] ^= 1


def _draw(of: Trainer) -> None:
    torch.rand(1)


def _times_the_rate(factor: float, ranks: Sequence[int]) -> Sabotage:
    """These ranks update with another learning rate."""
    right = optimizers.set_learning_rate

    def wrong(optimizer: torch.optim.Optimizer, rate: float) -> None:
        right(optimizer, rate * factor if dist.get_rank() in ranks else rate)

    return lambda: mock.patch.object(optimizers, "set_learning_rate", wrong)


def _no_update(is_lost: Callable[[int], bool]) -> Sabotage:
    """The updates for whose number, from 1, `is_lost` are not made."""

    def sabotage() -> contextlib.AbstractContextManager[object]:
        step, made = Precision.step, itertools.count(1)

        def sometimes(self: Precision, optimizer: torch.optim.Optimizer) -> None:
            if not is_lost(next(made)):
                step(self, optimizer)

        return mock.patch.object(Precision, "step", sometimes)

    return sabotage


def _same_samples() -> contextlib.AbstractContextManager[object]:
    init_sampler = MicroBatches.__init__

    def always_first(self: MicroBatches, *arguments: Any, dp_rank: int, **more: Any) -> None:
        init_sampler(self, *arguments, dp_rank=0, **more)

    return mock.patch.object(MicroBatches, "__init__", always_first)


def _lost_samples() -> contextlib.AbstractContextManager[object]:
    batches = MicroBatches.__iter__

    def others(self: MicroBatches) -> Iterator[Any]:
        for number, indices in enumerate(batches(self)):
            if _is_second() and number == 2:
                self.handed_out[-1] = indices = self.order[: len(indices)]
            yield indices

    return mock.patch.object(MicroBatches, "__iter__", others)


def _same_dropout() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(trainer, "generator_seed", lambda config, dp_rank: config.seed << 20)


def _wrong_products() -> contextlib.AbstractContextManager[object]:
    forward = Llama.forward

    def wrong(self: Llama, batch: Any) -> Any:
        found = forward(self, batch)
        if not self.training and _is_second():
            found[LOSS] = found[LOSS] * 1.0001
        return found

    return mock.patch.object(Llama, "forward", wrong)


def _evaluated_on(*, moved: int) -> Sabotage:
    """All ranks evaluate samples of the training set: those of the same numbers, or `moved` others."""

    class OfTraining(SampleSet):
        def __init__(self, samples: SampleSet, count: int) -> None:
            self.samples, self.count = samples, count

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, indices: Any) -> Any:
            return self.samples[indices + moved]

    def sabotage() -> contextlib.AbstractContextManager[object]:
        class Remembering(DataOrder):
            def __init__(self, sampler: MicroBatches, **more: Any) -> None:
                super().__init__(sampler, **more)
                found["train"] = sampler._samples  # type: ignore[assignment]

        found: dict[str, SampleSet] = {}

        def of_training(samples: SampleSet, *more: Any) -> Any:
            return Evaluator(OfTraining(found["train"], len(samples)), *more)

        stack = contextlib.ExitStack()
        stack.enter_context(mock.patch.object(trainer, "DataOrder", Remembering))
        stack.enter_context(mock.patch.object(trainer, "Evaluator", of_training))
        return stack

    return sabotage


def _weight_not_finite() -> contextlib.AbstractContextManager[object]:
    """From step AT on the gradient of one weight of the second rank is not finite, and no other number is."""
    step = Trainer.train_step

    def broken(self: Trainer, batches: Any, *, is_logged: bool) -> Any:
        if self.step == AT - 1 and _is_second():
            weight = self.model.module.get_parameter("model.layers.1.mlp.up_proj.weight")
            weight.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
        return step(self, batches, is_logged=is_logged)

    return mock.patch.object(Trainer, "train_step", broken)


def _not_finite(*, is_of_gradient: bool) -> Sabotage:
    """In step AT the second rank computes a loss that is not finite, or a gradient of it."""

    def sabotage() -> contextlib.AbstractContextManager[object]:
        forward, trained = Llama.forward, itertools.count(1)

        def broken(self: Llama, batch: Any) -> Any:
            found = forward(self, batch)
            # The probe of the gradients makes the first two passes.
            if self.training and torch.is_grad_enabled() and next(trained) == AT + 2 and _is_second():
                if is_of_gradient:
                    found[LOSS].register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
                else:
                    found[LOSS] = found[LOSS] * torch.inf
            return found

        return mock.patch.object(Llama, "forward", broken)

    return sabotage


RARELY = {"eval_interval_samples": None, "log_freq": 100}
ALL_SABOTAGES: dict[str, tuple[str, dict[str, Any], Sabotage]] = {
    "none": ("llama", {}, contextlib.nullcontext),
    "no_averaging": ("llama", {}, _no_averaging),
    "no_averaging_unprobed": ("llama", {}, _no_averaging_unprobed),
    "no_averaging_of_shards": ("llama", FSDP, _no_averaging_of_shards),
    "bit": ("llama", {}, _after_a_step(_flip_a_bit)),
    "bit_between_evaluations": ("llama", RARELY | {"compare_interval_steps": 2}, _after_a_step(_flip_a_bit)),
    "loss": ("llama", RARELY | {"compare_interval_steps": 4}, _not_finite(is_of_gradient=False)),
    "loss_that_is_logged": ("llama", RARELY | FSDP | {"log_freq": 3}, _not_finite(is_of_gradient=False)),
    "gradient": ("llama", RARELY | {"compare_interval_steps": 4}, _not_finite(is_of_gradient=True)),
    "gradient_of_shards": ("llama", RARELY | FSDP, _not_finite(is_of_gradient=True)),
    "gradient_of_a_weight": ("llama", RARELY | {"compare_interval_steps": 4}, _weight_not_finite),
    "gradient_of_a_weight_in_fp16": (
        "llama",
        RARELY | {"compare_interval_steps": 4, "precision": "fp16", "init_loss_scale": 4.0},
        _weight_not_finite,
    ),
    "evaluated_on_training": ("llama", {}, _evaluated_on(moved=0)),
    "evaluated_on_other_training": ("llama", FSDP, _evaluated_on(moved=8)),
    "lost_update": ("llama", RARELY | {"compare_interval_steps": 1}, _no_update(lambda number: number == AT)),
    "bit_of_what_layers_share": ("llama", TP, _after_a_step(_flip_a_norm)),
    "rate_of_zero": ("llama", {}, _times_the_rate(0, (0, 1))),
    "half_rate_of_shards": ("llama", FSDP, _times_the_rate(0.5, (1,))),
    "no_updates": ("llama", FSDP, _no_update(lambda _: True)),
    "no_updates_later": ("llama", {}, _no_update(lambda number: number > INTERVAL)),
    "lost_update_of_shards": ("llama", FSDP, _no_update(lambda number: _is_second() and number == AT)),
    "same_samples": ("llama", {}, _same_samples),
    "lost_samples": ("llama", {}, _lost_samples),
    "same_dropout": ("cpm", {"hidden_dropout": 0.1}, _same_dropout),
    "drawn": ("llama", TP, _after_a_step(_draw)),
    "wrong_products": ("llama", FSDP, _wrong_products),
}
# Done in make nightly alone: variants of what is done by day.
LATE = {
    *("no_averaging_unprobed", "no_averaging_of_shards", "bit_of_what_layers_share", "rate_of_zero"),
    *("loss_that_is_logged", "gradient_of_a_weight", "gradient_of_shards", "evaluated_on_other_training"),
    *("no_updates", "no_updates_later", "lost_update"),
}
SABOTAGES = {name: sabotage for name, sabotage in ALL_SABOTAGES.items() if NIGHTLY or name not in LATE}


def _shuffled_labels(ranks: Sequence[int]) -> Sabotage:
    """In the training of these ranks, tokens are to be followed by those of other places."""

    def sabotage() -> contextlib.AbstractContextManager[object]:
        right = nn.functional.cross_entropy

        def shuffled(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            is_wrong = dist.get_rank() in ranks and torch.is_grad_enabled()
            return right(logits, labels.flip(0) if is_wrong else labels)

        return mock.patch.object(nn.functional, "cross_entropy", shuffled)

    return sabotage


def _other_data() -> contextlib.AbstractContextManager[object]:
    """The second rank gets the samples of its batch backwards."""
    read = TensorSet.__getitem__

    def backwards(self: TensorSet, indices: Any) -> Any:
        found = read(self, indices)
        is_wrong = _is_second() and len(self) == CURVE_SETTINGS["train_samples"]
        return {name: tensor.flip(1) if is_wrong else tensor for name, tensor in found.items()}

    return mock.patch.object(TensorSet, "__getitem__", backwards)


CURVE_SETTINGS: dict[str, Any] = {
    "max_steps": 40,
    "log_freq": 1,
    "eval_interval_samples": 20 * GLOBAL_BATCH,
    "train_samples": 512,
}
CURVES: dict[str, tuple[dict[str, Any], Sabotage]] = {
    "reference": ({}, contextlib.nullcontext),
    "fsdp": (FSDP, contextlib.nullcontext),
    **{f"seed {seed}": ({"seed": seed}, contextlib.nullcontext) for seed in (43, 44, 45)},
    "labels of rank 1": ({}, _shuffled_labels((1,))),
    "data of rank 1": ({}, _other_data),
    "labels of all": ({}, _shuffled_labels((0, 1))),
    "labels of all, seed 45": ({"seed": 45}, _shuffled_labels((0, 1))),
    "lower rate": ({"learning_rate": 4e-3}, contextlib.nullcontext),
}


def _curve(name: str, folder: Path, group: Any) -> list[Any]:
    """The values of STEP_END."""
    settings, sabotage = CURVES[name]
    with sabotage():
        run = trainer_of("llama", config_of("llama", **(CURVE_SETTINGS | settings)), group, folder / f"{name}.log")
        log = io.StringIO()
        run._logger = PerfLogger(dist.get_rank(), log)
        run.train()
    records = map(parse_line, log.getvalue().splitlines())
    return [record.value for record in records if record is not None and record.event is Event.STEP_END]


def _left_first(run: Trainer) -> bool:
    """Whether this rank is the one that departed."""
    assert run.proof.departure is not None
    return run.proof.departure.rank == dist.get_rank()


def _ended(name: str, folder: Path, group: Any) -> str | None:
    """The message with which this rank ends."""
    model, settings, sabotage = SABOTAGES[name]
    with sabotage():
        run = trainer_of(model, config_of(model, **(SETTINGS | settings)), group, folder / f"{name}.log")
        run._logger = PerfLogger(dist.get_rank(), io.StringIO())
        try:
            run.evaluate()
            run.check_gradients()
            run.train()
        except SystemExit as end:
            if _left_first(run):
                dist.barrier()  # the other waits for the end of this rank
            return str(end.code)
    return None


def _identity(data: Path, group: Any, remote: bool) -> Any:
    """The files of a node's folder, and how many of them this rank has read; or what is wrong with them."""
    placement = Placement(rank=dist.get_rank(), world_size=2, local_rank=0, local_world_size=1, nnodes=2)
    of_nodes = ProcessGroup(placement=placement, device=group.device, backend="gloo")
    read: list[str] = []
    hash_file = file_hashes.Hashing._hash

    def noted(self: Any, path: Path) -> file_hashes.FileHashes:
        read.append(path.name)
        return hash_file(self, path)

    files = sorted(data.iterdir())
    try:
        with (
            mock.patch.object(file_hashes.Hashing, "_hash", noted),
            mock.patch.object(data_identity, "_is_remote", lambda _: remote),
            mock.patch.object(data_identity, "_facts", lambda path: (path.stat().st_size, 0, 0)),
        ):
            found = data_identity.identify(files, data, of_nodes, None, PUBLISHED)
    except DataError as error:
        return str(error)
    return {"files": found.files, "sha256": found.sha256, "read": sorted(read)}


def _rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    placement = Placement(rank=rank, world_size=2, local_rank=rank, local_world_size=2, nnodes=1)
    with init("gloo", timeout_s=60, placement=placement) as group:
        ended = {name: _ended(name, folder, group) for name in SABOTAGES}
        curves = {name: _curve(name, folder, group) for name in CURVES}
        identities = [_identity(folder / "data" / f"node{rank}", group, remote) for remote in (False, True)]
        (folder / "data" / f"node{rank}" / "b").write_bytes(b"bb" if rank else b"cc")
        identities.append(_identity(folder / "data" / f"node{rank}", group, False))
    (folder / f"identity{rank}.json").write_text(json.dumps(identities))
    (folder / f"ended{rank}.json").write_text(json.dumps(ended))
    if rank == 0:
        (folder / "curves.json").write_text(json.dumps(curves))


def main() -> None:
    """Start both ranks, or be one."""
    if VARIABLE in os.environ:
        model, _, sabotage = SABOTAGES[os.environ[VARIABLE]]
        with sabotage(), mock.patch.object(MODELS[model][0], "published_md5", PUBLISHED):
            run_training(MODELS[model][0](), MODELS[model][1])
        return
    for node in ("node0", "node1"):
        for name, content in {"a": b"a" * 3, "b": b"bb", "c": b"c" * 9}.items():
            (Path(sys.argv[1]) / "data" / node).mkdir(parents=True, exist_ok=True)
            (Path(sys.argv[1]) / "data" / node / name).write_bytes(content)
    start(_rank, 2, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
