"""The comparisons: trains tiny models in every layout on real ranks and writes what was found to <folder>.

    python -m tests.training.benchmarks.driver.training.parity_workload <folder> <layouts.json>

layouts.json: {name: {"ranks": 2, "model": ..., "settings": {...}}}; a layout whose settings cannot be used gives its
message. The ranks of all layouts that want equally many are started once, and leave <folder>/losses<ranks>.json.
"""

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.distributed.tensor import DTensor

from tests.training.benchmarks.driver.launch.launching import ROOT
from tests.training.benchmarks.driver.training.ranks import start
from tests.training.benchmarks.driver.training.tiny import STEPS, config_of, trainer_of
from training.benchmarks.driver.training.data import hugging_face
from training.benchmarks.driver.training.model import parallel
from training.benchmarks.driver.training.model.checkpoint import Checkpoints
from training.benchmarks.driver.training.proof.gradient_probe import unsynchronized
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import ProcessGroup, init
from training.benchmarks.driver.workload.usage import UnusableSettingsError


def started(folder: Path, layouts: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """What the workload, in processes of its own, finds of `layouts` within `seconds`."""
    file = folder / "layouts.json"
    file.write_text(json.dumps(layouts))
    result = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(folder), str(file)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    losses: dict[str, Any] = {}
    for path in folder.glob("losses*.json"):
        losses |= json.loads(path.read_text())
    return losses


def steps(trainer: Trainer, count: int, norms: list[float] | None = None) -> list[float]:
    """Losses of the next `count` steps, the mean of all ranks; the norms of their gradients are appended to `norms`."""
    losses: list[float] = []
    end = trainer.step + count
    while trainer.step < end:
        batches = trainer.batches()
        rest = trainer.schedule.steps_per_epoch - trainer.step % trainer.schedule.steps_per_epoch
        for _ in range(min(rest, end - trainer.step)):
            trainer.train_step(batches, is_logged=True)
            of_ranks = trainer.proof.losses()
            losses.append(sum(of_ranks) / len(of_ranks))
            if norms is not None:
                norms.append(trainer._update.numerics()["grad_norm"])
    return losses


def whole(parameter: Tensor) -> Tensor:
    """The parameter's values of all ranks, on the CPU."""
    full = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return full.detach().cpu().clone()


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """Every parameter, whole, those of all stages of a pipeline."""
    own = {name: whole(parameter) for name, parameter in trainer.model.module.named_parameters()}
    if trainer.model.pipeline is None:
        return own
    parts = [own] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, own)
    return {name: parameter for part in parts for name, parameter in part.items()}


def _train(name: str, layout: dict[str, Any], folder: Path, group: ProcessGroup) -> dict[str, Any]:
    config = config_of(layout["model"], **layout["settings"])
    if layout.get("folder_of_each_rank"):
        config = config.model_copy(update={"checkpoint_dir": f"{folder}/checkpoints{group.placement.rank}"})
    torch.compiler.reset()  # no layout is to find the last one's limit of compilations reached
    try:
        trainer = trainer_of(layout["model"], config, group, folder / f"{name}.rank{group.placement.rank}.log")
    except UnusableSettingsError as error:
        return {"refused": str(error)}
    start = weights(trainer)
    if group.placement.rank == 0:
        torch.save(start, folder / f"{name}.start.pt")
    before = trainer.evaluate()
    trainer.check_gradients()
    norms: list[float] = []
    losses = steps(trainer, layout.get("steps", STEPS), norms)
    figures = trainer.model.module.figures()
    end = weights(trainer)
    if group.placement.rank == 0:
        torch.save(end, folder / f"{name}.end.pt")
    if trainer.model.pipeline is None:
        hugging_face.write(folder / f"{name}.hf", trainer.model.module, {}, shard_bytes=20_000)
    after = trainer.evaluate()
    scales: list[float | None] = [None] * group.placement.world_size
    torch.distributed.all_gather_object(scales, trainer.precision.loss_scale)
    return {"losses": losses, "before": before, "after": after, "loss_scales": scales} | {
        "grad_norms": norms,
        "figures": figures,
    }


def _sabotaged(name: str, layout: dict[str, Any], folder: Path, group: ProcessGroup) -> dict[str, str | None]:
    """What the checks say of replicas of shards in which something is broken."""
    trainer = trainer_of(layout["model"], config_of(layout["model"], **layout["settings"]), group, folder / name)
    module = trainer.model.module
    found: dict[str, str | None] = {}

    def probe(kind: str) -> None:
        sample = trainer._data.train[[0]]
        lonely = unsynchronized(trainer.model, trainer.layout, trainer.precision, sample, trainer.config.seed)
        found[kind] = None if lonely is None else lonely.sentence

    probe("none")

    def alone(_: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    # set_requires_all_reduce(False) leaves no gradients at all, which would be found without a change of any.
    apart = (
        mock.patch.object(torch.distributed, "all_reduce", lambda *_, **__: None)
        if isinstance(module, FSDPModule)
        else mock.patch.object(parallel, "allreduce_hook", alone)
    )
    with apart:
        probe("replicas apart")

    def own_part(_: Any, output_tensor: Tensor, input_tensor: Tensor, group: Any, **__: Any) -> None:
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])

    if isinstance(module, FSDPModule):
        with mock.patch.object(DefaultReduceScatter, "__call__", own_part):
            probe("shards apart")
    trainer.compare()
    if group.placement.rank == group.placement.world_size - 1:
        weight = module.get_parameter("model.layers.1.self_attn.q_proj.weight")
        part = weight.to_local() if isinstance(weight, DTensor) else weight
        part.data.view(torch.int32)[3, 5] ^= 1
    trainer.compare()
    found["bit"] = None if trainer.proof.departure is None else trainer.proof.departure.sentence
    return found


def _resume(name: str, layout: dict[str, Any], folder: Path, group: ProcessGroup) -> dict[str, Any]:
    """The curve of one run beside that of a run which stops after half of the steps and goes on from its checkpoint."""
    half = int(layout["steps"]) // 2
    settings = layout["settings"] | {"checkpoint_dir": str(folder / f"{name}.checkpoints")}
    log = folder / f"{name}.rank{group.placement.rank}.log"

    def trainer(**more: Any) -> Trainer:
        return trainer_of(layout["model"], config_of(layout["model"], **settings, **more), group, log)

    whole_run = trainer(checkpoint_interval_steps=1000)
    straight = steps(whole_run, 2 * half)
    first = trainer(checkpoint_interval_steps=half)
    broken = steps(first, half)
    assert first.checkpoints is not None
    path = first.checkpoints.save(half, first.model, first.optimizer, first.precision)
    if group.placement.rank == 0:
        _age(path / "run.json", type(first.config))
    torch.distributed.barrier()
    second = trainer(resume=True)
    resumed_at = second.step
    broken += steps(second, half)
    same = all(torch.equal(a, b) for a, b in zip(weights(whole_run).values(), weights(second).values(), strict=True))
    refusals = []
    for change in layout["refused_changes"]:
        try:
            trainer_of(
                layout["model"], config_of(layout["model"], **(settings | {"resume": True} | change)), group, log
            )
        except UnusableSettingsError as error:
            refusals.append(str(error))
    damaged = _after_damage(first.checkpoints, second, group)
    return {
        "straight": straight,
        "broken": broken,
        "at": resumed_at,
        "same_weights": same,
        "refusals": refusals,
        "damaged": damaged,
    }


def _age(file: Path, settings: type[TrainingConfig]) -> None:
    """Leave of a checkpoint's facts those of a version in which no setting was that has its default now."""
    facts = json.loads(file.read_text())
    defaults = {key: field.default for key, field in settings.model_fields.items()} | {
        "model": facts["identity"]["model"]
    }
    facts["identity"] = {key: value for key, value in facts["identity"].items() if defaults.get(key) != value}
    file.write_text(json.dumps(facts))


def _after_damage(checkpoints: Checkpoints, trainer: Trainer, group: ProcessGroup) -> str:
    """What loading says of a checkpoint one of whose files has lost its end."""
    path = checkpoints.latest()
    assert path is not None
    if group.placement.rank == 0:
        part = max(path.glob("*.distcp"), key=lambda file: file.stat().st_size)
        part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    torch.distributed.barrier()
    try:
        checkpoints.load(path, trainer.model, trainer.optimizer, trainer.precision)
    except UnusableSettingsError as error:
        return str(error)
    return "loaded"


def _rank(rank: int, ranks: int, folder: Path, layouts: dict[str, Any]) -> None:
    """One of `ranks` ranks, which train all `layouts` one after the other."""
    faulthandler.enable()
    torch.set_num_threads(1)
    placement = Placement(rank=rank, world_size=ranks, local_rank=rank, local_world_size=ranks, nnodes=1)
    results = {}
    with init("gloo", timeout_s=120, placement=placement) as group:
        for name, layout in layouts.items():
            kind = _resume if "refused_changes" in layout else _sabotaged if "sabotage" in layout else _train
            results[name] = kind(name, layout, folder, group)
    if rank == 0:
        (folder / f"losses{ranks}.json").write_text(json.dumps(results))


def main() -> None:
    """Leaves with the first rank's error."""
    folder, layouts = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    for ranks in sorted({layout["ranks"] for layout in layouts.values()}):
        chosen = {name: layout for name, layout in layouts.items() if layout["ranks"] == ranks}
        start(_rank, ranks, ranks, folder, chosen)


if __name__ == "__main__":
    main()
