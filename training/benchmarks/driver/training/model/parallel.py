"""Distributes a model over the ranks: tensor and sequence parallelism (DTensor), DDP, FSDP2 or HSDP, and weights."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.experts import divide_experts, mixtures
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.model.pipeline import Pipeline, can_be_scheduled, cut_to_rank
from training.benchmarks.driver.training.model.staged import Stage, StagedModel
from training.benchmarks.driver.training.settings.division import Coordinates
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """This rank's place among data-parallel (dp) and tensor-parallel (tp) ranks, and in its pipeline (pp); adjacent
    ranks share a tp group, the ranks of a pipeline are farthest from each other.

    Of the data-parallel ranks each `shard_size` in a row hold one copy of the parameters between them. The mesh has the
    dimensions dp and tp, with HSDP dp_replicate, dp_shard and tp, with pipelines pp before them. Where experts are
    divided, `expert_mesh` has the data-parallel ranks in the dimensions edp and ep: adjacent ranks have different
    experts, those of one edp the same. Where sequences are divided, the last data-parallel dimension, dp_cp or
    dp_shard_cp, has the `cp_size` ranks of each sample in a row, over which gradients are averaged, too;
    `context_mesh` has them in the dimension cp.
    """

    dp_rank: int
    dp_size: int
    shard_size: int
    tp_size: int
    pp_size: int = 1
    cp_size: int = 1
    sequence_parallel: bool
    mesh: DeviceMesh
    expert_mesh: DeviceMesh | None = None
    context_mesh: DeviceMesh | None = None

    @classmethod
    def of(
        cls, group: ProcessGroup, config: TrainingConfig, *, tp_size: int = 1, sequence_parallel: bool = False
    ) -> "Layout":
        """The layout of all ranks; `tp_size` is in ranks.

        Raises:
            UnusableSettingsError: the ranks cannot be divided as the settings say.
        """
        world_size = group.placement.world_size
        try:
            shard_size = config.ranks_of_a_copy(world_size=world_size, per_node=group.placement.local_world_size)
        except ValueError as error:
            raise UnusableSettingsError(str(error)) from error
        pp_size, _ = config.pipeline_parallelism()
        if pp_size > 1 and not can_be_scheduled():
            raise UnusableSettingsError(f"pipeline_parallel_size = {pp_size} needs torch 2.10 or later")
        averaged = world_size // (tp_size * pp_size)
        cp_size = config.context_parallelism()
        shape: tuple[int, ...] = (averaged, tp_size)
        names: tuple[str, ...] = ("dp", "tp")
        if config.strategy == "hsdp":
            shape, names = (averaged // shard_size, shard_size, tp_size), ("dp_replicate", "dp_shard", "tp")
        last = names[-2]
        if cp_size > 1:
            names = (*names[:-2], f"{last}_cp", "tp")
        if pp_size > 1:
            shape, names = (pp_size, *shape), ("pp", *names)
        mesh = init_device_mesh(group.device.type, shape, mesh_dim_names=names)
        return cls(
            dp_rank=group.placement.rank // (tp_size * cp_size) % (averaged // cp_size),
            dp_size=averaged // cp_size,
            shard_size=shard_size,
            tp_size=tp_size,
            pp_size=pp_size,
            cp_size=cp_size,
            sequence_parallel=sequence_parallel,
            mesh=mesh,
            expert_mesh=_divided_again(mesh, config.expert_parallelism(), "expert", ("edp", "ep")),
            context_mesh=_divided_again(mesh, cp_size, "context", (last, "cp")),
        )

    @property
    def averaged_size(self) -> int:
        """Number of ranks over which gradients are averaged."""
        return self.dp_size * self.cp_size

    def data_parallel_mesh(self) -> DeviceMesh:
        """The mesh without the dimensions of tensor parallelism and of the pipeline."""
        return self.mesh[tuple(name for name in self.mesh.mesh_dim_names or () if name not in ("tp", "pp"))]

    def place_of(self, rank: int) -> Coordinates:
        """The place of a rank in each dimension of the mesh, and among the ranks with different samples (dp)."""
        place = {"dp": rank // (self.tp_size * self.cp_size) % self.dp_size}
        for mesh in (self.mesh, self.expert_mesh, self.context_mesh):
            if mesh is not None:
                found = (mesh.mesh == rank).nonzero()[0].tolist()
                place |= dict(zip(mesh.mesh_dim_names or (), found, strict=True))
        return place


def _divided_again(mesh: DeviceMesh, size: int, kind: str, names: tuple[str, str]) -> DeviceMesh | None:
    """The ranks of `mesh` with its dimension before tp in two, of which the last has `size`; None if that is 1."""
    if size == 1:
        return None
    if not hasattr(DeviceMesh, "_unflatten"):
        raise UnusableSettingsError(f"{kind}_parallel_size = {size} needs torch 2.10 or later")
    return mesh._unflatten(mesh.ndim - 2, (mesh.shape[-2] // size, size), names)


class ParallelModel:
    """A model distributed over the ranks; a call gives a micro-batch's loss; `module`: the model, on `device`."""

    def __init__(
        self,
        module: BenchmarkModel,
        layout: Layout,
        config: TrainingConfig,
        device: torch.device,
        stages: Mapping[int, nn.Module] = MappingProxyType({}),
    ) -> None:
        """`stages`: those of this rank by number, where the model is divided into a pipeline."""
        self.module, self.device = module, device
        self._replicas = layout.mesh["dp"].get_group() if layout.pp_size > 1 else None  # None: all ranks
        wraps = layout.averaged_size > 1 and config.strategy == "ddp"
        self._keeps_gradients = wraps and config.gradient_accumulation_steps > 1
        self._parts: dict[int, nn.Module] = {
            number: _replica(part, self._replicas, device) if wraps else part
            for number, part in (stages or {0: module}).items()
        }
        self.pipeline: Pipeline | None = None
        if stages:
            assert isinstance(module, StagedModel)
            self.pipeline = Pipeline(module, self._parts, config, layout.mesh["pp"], device)

    def __call__(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The result of the model's forward; of a pipeline on all of its ranks, without gradients."""
        if self.pipeline is not None:
            return self.pipeline.evaluated(batch)
        result: dict[str, Tensor] = self._parts[0](batch)
        return result

    def clear_gradients(self) -> None:
        """Forget all gradients. Replicas that add those of several micro-batches keep zeros in the buffers over which
        DDP averages: beside these, new gradients would take as much memory again.
        """
        if not self._keeps_gradients:
            self.module.zero_grad(set_to_none=True)
        elif kept := [each.grad for each in self.module.parameters() if each.grad is not None]:
            torch._foreach_zero_(kept)

    def accumulating(self, is_last: bool) -> contextlib.AbstractContextManager[object]:
        """Context of each micro-batch: gradients accumulate, and replicas are averaged in the last one only. FSDP2
        divides gradients over the ranks of a copy in each: whole ones of all layers would not fit.
        """
        whole = self._parts[0]
        if isinstance(whole, FSDPModule):
            whole.set_requires_all_reduce(is_last)
        elif isinstance(whole, DistributedDataParallel) and not is_last:
            return whole.no_sync()
        return contextlib.nullcontext()

    def watch_gradients(self, note: Callable[[Tensor], None]) -> None:
        """Call `note` with this rank's gradients, in pieces of any shape, before each sum over data-parallel ranks. It
        waits for nothing: it may run beside the backward pass, on the stream of the sum.
        """

        def summed(group: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
            note(bucket.buffer())
            return allreduce_hook(group, bucket)  # type: ignore[arg-type]  # None is the default group

        for part in self._parts.values():
            if isinstance(part, DistributedDataParallel):
                part.register_comm_hook(self._replicas, summed)
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    module.set_custom_reduce_scatter(_WatchedReduceScatter(note))


def _replica(part: nn.Module, ranks: dist.ProcessGroup | None, device: torch.device) -> nn.Module:
    return DistributedDataParallel(
        part,
        device_ids=None if device.type == "cpu" else [device.index],
        process_group=ranks,
        gradient_as_bucket_view=True,
    )


class _WatchedReduceScatter(DefaultReduceScatter):
    """FSDP2's own reduction of gradients to shards; `note` is given each gradient before."""

    def __init__(self, note: Callable[[Tensor], None]) -> None:
        self._note = note

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work:
        self._note(input_tensor)
        return super().__call__(output_tensor, input_tensor, group=group, op=op, async_op=async_op)


def spread(
    model: BenchmarkModel,
    layout: Layout,
    config: TrainingConfig,
    device: torch.device,
    weights: Mapping[str, Tensor] | None = None,
    compile_backend: str | None = None,
) -> ParallelModel:
    """Divide `model`, which is on the meta device, over the ranks and fill it on `device`.

    The weights are `weights` (all of them by name, in the shapes of the whole model, on the CPU), or follow from
    config.seed; either way they do not depend on the layout. Blocks are compiled by `compile_backend`, if any.
    """
    shapes = {name: (parameter.shape, parameter.dtype) for name, parameter in model.named_parameters()}
    stages: dict[int, Stage] = {}
    if layout.pp_size > 1:
        if not isinstance(model, StagedModel):
            raise NotImplementedError(f"{type(model).__name__} has no pipeline parallelism")
        stages = cut_to_rank(model, config, layout.mesh.get_local_rank("pp"))
    _divide(model, layout)
    if config.strategy != "ddp":
        for part in stages.values() or [model]:
            _shard(part, layout, config)
    model.to_empty(device=device)
    _fill(model, config.seed, device, shapes, weights)
    model.recompute = config.recompute
    if config.strategy != "ddp":
        # Torch 2.11 casts a block's inputs in the forward pass alone: from outside a float32 input, such as a table of
        # angles, would be saved in bfloat16 and recomputed in float32.
        model.recompute_within()
    if compile_backend is not None:
        compile_blocks(model, compile_backend)
    return ParallelModel(model, layout, config, device, stages)


def _divide(model: BenchmarkModel, layout: Layout) -> None:
    """Leave this rank its part of layers, experts and sequences."""
    if layout.tp_size > 1:
        there = dict(model.named_modules())
        plan = model.tensor_parallel_plan(layout.sequence_parallel)
        parallelize_module(model, layout.mesh["tp"], {name: style for name, style in plan.items() if name in there})
    if layout.expert_mesh is not None:
        divide_experts(model, layout.expert_mesh["ep"])
    if layout.context_mesh is not None:
        group = layout.context_mesh["cp"].get_group()
        model.divide_sequence(ContextParallel(layout.cp_size, group.rank(), group))
    if layout.averaged_size > 1 and mixtures(model):
        model.data_group = layout.data_parallel_mesh()._flatten().get_group()


def _shard(model: BenchmarkModel | Stage, layout: Layout, config: TrainingConfig) -> None:
    # fp16 is left to autocast: the scaler needs gradients in float32.
    is_bf16 = config.precision == "bf16"
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if is_bf16
        else MixedPrecisionPolicy()
    )
    mesh = layout.data_parallel_mesh()
    # A stage needs its parameters for many micro-batches in turn: it keeps them whole from the first to the last one.
    reshards = False if isinstance(model, Stage) else None
    if layout.expert_mesh is not None:
        for layer in mixtures(model):
            # By rows of each matrix: there may be fewer experts than ranks.
            fully_shard(
                layer.experts, mesh=layout.expert_mesh["edp"], mp_policy=policy, shard_placement_fn=lambda _: Shard(1)
            )
    for block in model.blocks():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)


def compile_blocks(model: BenchmarkModel, backend: str) -> None:
    """Compile each block: one operator from outside, so that the compiler decides what recomputation keeps."""
    model.is_compiled = True
    if model.recompute == "selective":
        model.recompute_within()
    for block in model.blocks():
        block.compile(backend=backend)


@torch.no_grad()
def _fill(
    model: BenchmarkModel,
    seed: int,
    device: torch.device,
    shapes: Mapping[str, tuple[torch.Size, torch.dtype]],
    weights: Mapping[str, Tensor] | None,
) -> None:
    """`shapes`: those of the whole model, of which this rank may have a part."""
    generator = torch.Generator(device).manual_seed(seed)
    own = dict(model.named_parameters())
    for name, (shape, dtype) in shapes.items():
        whole = torch.empty(shape, dtype=dtype, device=device)
        if weights is None:
            model.initialize(name, whole, generator)
        else:
            whole.copy_(weights[name])
        parameter = own.get(name)
        if parameter is None:
            continue
        if isinstance(parameter, DTensor):
            # Every rank has all weights and keeps its part: nothing is sent.
            part = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(part.to_local())
        else:
            parameter.copy_(whole)
    model.make_constants(device)
