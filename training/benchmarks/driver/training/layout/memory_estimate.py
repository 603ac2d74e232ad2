"""Estimates what a training step holds in a device's memory, without one.

Of what predict's memory model knows (described) that model says it. Else tensors that have shapes and no storage do:
weights, gradients and optimizer are those of workloads.job.model_states. Activations: what is still held after a
forward pass under autocast, each storage once, of one tensor-parallel rank's share of a model with one and with two
layers; every further layer adds the difference, of what recomputation keeps of it; the backward pass computes one layer
again at a time. What the allocator loses by fragments, and CUDA's own context, are RESERVED. Gradients count beside all
activations although they come as these go: FSDP2 makes them on another stream, for which the allocator keeps memory of
its own (of an H100 nvidia-smi showed 41 GiB where 33 were allocated at most).
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.layout import described
from training.benchmarks.driver.training.layout.rank_share import cut_experts_to_one_rank, cut_to_one_rank
from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.experts import mixtures
from training.benchmarks.driver.training.model.model import BenchmarkModel, parameter_count
from training.benchmarks.driver.training.model.staged import Stage, StagedModel, hidden_dtype
from training.benchmarks.driver.training.settings.settings import Recompute, TrainingConfig
from workloads.job.model_states import HALF, SINGLE, ModelStates, fully_sharded, single_precision

RESERVED = 0.10
Kernels = Literal["any", "cpu", "gpu"]
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def step_bytes(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    world_size: int,
    per_node: int = 8,
    on_cpu: bool = False,
    *,
    allocated: bool = False,
) -> float:
    """Peak of a step on one device, in bytes, RESERVED not counted; `per_node` ranks are on each node.

    allocated: the most that tensors hold at a time; less than what the allocator needs, where gradients come as
    activations go.
    """
    if not on_cpu:
        known = described.bytes_of_ranks(config, world_size=world_size, per_node=per_node, allocated=allocated)
        if known is not None:
            return max(known)
    return traced_bytes(benchmark, config, world_size, per_node, on_cpu, allocated=allocated)


def traced_bytes(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    world_size: int,
    per_node: int = 8,
    on_cpu: bool = False,
    *,
    allocated: bool = False,
) -> float:
    """The same by tensors without storage, of any training.

    On the CPU (`on_cpu`) torch's attention keeps the weights and what drops them, CUDA's fused kernels keep neither.
    """
    states, output, at_end, freed = _states(benchmark, config, world_size, per_node)
    is_early = not allocated or config.strategy == "ddp" or config.gradient_accumulation_steps > 1
    coming = 0.0 if is_early else states.gradients
    kernels = kernels_for(on_cpu, allocated=allocated)
    layer = _traced_layer(benchmark, config, kernels, config.recompute)
    one: float = peak_of_one_layer(benchmark, config, kernels)
    forward = activation_bytes(benchmark, config, 1, config.recompute, kernels, peak="forward") if freed else 0
    ahead = states.passing + forward + (config.num_layers - 1) * layer
    with_loss = states.passing - freed + one + (config.num_layers - 1) * layer
    after_loss = states.passing - freed + output + config.num_layers * layer
    at_end = max(at_end, states.passing + layer) + coming if coming else at_end
    return states.total - states.passing - coming + max(ahead, with_loss, after_loss, at_end)


def _states(
    benchmark: TrainingBenchmark[Any], config: TrainingConfig, world_size: int, per_node: int
) -> tuple[ModelStates, float, float, float]:
    """The states; the bytes of the output's gradients, which FSDP2 keeps from the loss on; what passes at the end of
    the backward pass, when no activation is left: the gradients of what is outside of the layers are summed last,
    beside those of the first layer that are on their way; what passes in the forward pass alone: autocast's copies of
    replicas' layers that are computed again, of which the backward pass makes those of one at a time.
    """
    with torch.device("meta"):
        model = benchmark.build_model(config)
    tp_size, _ = config.tensor_parallelism()
    parameters = parameter_count(model) / tp_size
    layer = sum(each.numel() for each in model.blocks()[0].parameters()) / tp_size
    is_half = config.precision in _HALF
    moments = 4 if config.optimizer == "lamb" else 2  # LAMB's two temporary copies of the gradients
    if config.strategy == "ddp":
        freed = HALF * layer * (len(model.blocks()) - 1) if is_half and config.recompute != "none" else 0.0
        return single_precision(parameters, moments, half_copy=is_half), 0.0, 0.0, freed
    shards = config.ranks_of_a_copy(world_size=world_size, per_node=min(per_node, world_size))
    outside = parameters - len(model.blocks()) * layer
    width = HALF if config.precision == "bf16" else SINGLE
    experts = sum(parameter_count(layer.experts) for layer in mixtures(model.blocks()[0]))
    gathered = layer - experts * (1 - 1 / config.expert_parallelism())
    states = fully_sharded(parameters, shards, gathered, outside, moments, width)
    if shards == 1:  # the copies of what is outside of the layers stay, whoever holds the weights
        return states._replace(passing=HALF * outside if width == HALF else 0.0), 0.0, 0.0, 0.0
    # Embeddings that are the output, too, have its gradient.
    output = sum(map(parameter_count, model.ends()[1])) / tp_size if isinstance(model, StagedModel) else outside
    is_accumulated = config.gradient_accumulation_steps > 1
    at_end = (2 * width + SINGLE) * outside + (width + SINGLE) * gathered + is_accumulated * SINGLE * outside / shards
    return states, width * output, at_end, 0.0


def kernels_for(on_cpu: bool, *, allocated: bool = False) -> Kernels:
    """Whose memory is traced: that of the CPU's kernels, of a GPU's, or no less than either's."""
    return "cpu" if on_cpu else "gpu" if allocated else "any"


def peak_of_one_layer(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    kernels: Kernels,
    ends: tuple[bool, bool] = (True, True),
) -> int:
    """The most bytes of a model of one layer, whatever a longer one recomputes; the others: see activation_bytes."""
    config = config.model_copy(update={"activation_checkpointing": False})
    return activation_bytes(benchmark, config, 1, kernels=kernels, peak="backward", ends=ends)


def _traced_layer(
    benchmark: TrainingBenchmark[Any], config: TrainingConfig, kernels: Kernels, recompute: Recompute
) -> int:
    one, two = (activation_bytes(benchmark, config, layers, recompute, kernels) for layers in (1, 2))
    return two - one


class HeldStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Knows the storages of the results of all operators inside, and which of them something still refers to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self._seen: Callable[[], None] | None = None

    def on_each(self, seen: Callable[[], None]) -> None:
        """Call `seen` after every operator."""
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        if self._seen is not None:
            self._seen()
        return results

    def bytes(self, without: set[int]) -> int:
        """Bytes that are still held but for the storages `without`."""
        self._storages = {key: each for key, each in self._storages.items() if not each[0].expired()}  # type: ignore[no-untyped-call]
        return sum(size for key, (_, size) in self._storages.items() if key not in without)


@functools.lru_cache(maxsize=32)
def activation_bytes(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    layers: int,
    recompute: Recompute = "none",
    kernels: Kernels = "any",
    *,
    peak: Literal["", "forward", "backward"] = "",
    ends: tuple[bool, bool] = (True, True),
) -> int:
    """Bytes that are held after a forward pass through `layers` layers; or the `peak` of that pass; or of the backward
    pass, in which gradients of parameters do not count. `ends`: whether the layers have what comes before, after.

    The CPU kernels keep what those of CUDA do, but for the dropout of attention weights, which counts for the CPU
    alone; plain matrix products keep it everywhere. Of any kernels more is counted than a GPU's hold: weights and what
    passes between layers in float32, where FSDP2 has bfloat16.
    """
    small = _for_one_batch(config, layers, on_cpu=kernels == "cpu")
    batch = benchmark.synthetic_data(small).train[list(range(config.train_batch_size))]
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        model = benchmark.build_model(small).train()
        stage = _as_stage(model, ends, layers)
        is_cast = kernels == "gpu" and config.casts_weights()
        if kernels == "gpu":
            _as_on_gpu(model, config)
        cut_to_one_rank(model, *config.tensor_parallelism())
        cut_experts_to_one_rank(model, config.expert_parallelism())
        if config.context_parallelism() > 1:
            model.divide_sequence(ContextParallel(config.context_parallelism()))
        model.make_constants(torch.device("cpu"))
        model.recompute = recompute
        if config.strategy != "ddp":
            model.recompute_within()
        fake = {name: mode.from_tensor(tensor) for name, tensor in batch.items()}
        received = _received(model, config)
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        own |= {tensor.untyped_storage()._cdata for tensor in (received, *fake.values())}
        enabled = config.precision in _HALF
        with (
            HeldStorages() as held,
            torch.autocast(
                "cpu", dtype=_HALF.get(config.precision, torch.bfloat16), enabled=enabled, cache_enabled=False
            ),
        ):
            most = _Most(held, model, own)
            if peak == "forward":
                held.on_each(most.look)
            loss = model(fake)["loss"] if stage is None else stage(received, **fake)
            found = most.bytes if peak == "forward" else held.bytes(without=own)
        assert loss.requires_grad
        if peak == "backward":
            held.on_each(most.look)
            with held:
                torch.autograd.backward(loss, torch.ones_like(loss))
            found = most.bytes
    return found - (_kept_copies(model, recompute) if enabled and not is_cast else 0)


def _as_on_gpu(model: nn.Module, config: TrainingConfig) -> None:
    """Have a model hold what it does on a GPU: the weights that FSDP2 gathers, and what norms of one kernel keep."""
    if config.casts_weights():
        _cast_weights(model)
    _fuse_norms(model, is_cast=config.precision in _HALF and described.are_norms_cast())


def _cast_weights(model: nn.Module) -> None:
    """Cast the weights to bfloat16; module.to cannot cast fake tensors."""
    own: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            new = nn.Parameter(old.detach().to(torch.bfloat16), requires_grad=old.requires_grad)
            setattr(module, name, own.setdefault(id(old), new))


class _FusedNorm(torch.autograd.Function):
    """An RMSNorm that holds what CUDA's one kernel does: its input, and a number for each row. Sizes count alone."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight, hidden.new_empty(hidden.shape[:-1], dtype=torch.float32))
        return torch.empty_like(hidden)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight, _ = ctx.saved_tensors
        return torch.empty_like(hidden), torch.empty_like(weight)


def _fuse_norms(model: nn.Module, *, is_cast: bool) -> None:
    """Have RMSNorms hold what those of a GPU do, whose traces on a CPU have every operator; is_cast: in float32."""

    def norm(weight: nn.Parameter, hidden: Tensor) -> Tensor:
        inputs = (hidden.float(), weight.float()) if is_cast else (hidden, weight)
        result: Tensor = _FusedNorm.apply(*inputs)  # type: ignore[no-untyped-call]
        return result

    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            module.forward = functools.partial(norm, module.weight)  # type: ignore[method-assign]


def _kept_copies(model: BenchmarkModel, recompute: Recompute) -> int:
    """Bytes of the 16-bit copies of weights that passes under autocast keep."""
    again = {id(parameter) for block in model.blocks() for parameter in block.parameters() if recompute != "none"}
    return sum(HALF * each.numel() for each in model.parameters() if each.ndim > 1 and id(each) not in again)


def _as_stage(model: BenchmarkModel, ends: tuple[bool, bool], layers: int) -> Stage | None:
    """The model as a stage of a pipeline of which it keeps these ends; None for a whole one."""
    if all(ends) or not isinstance(model, StagedModel):
        return None
    is_first, is_last = ends
    model.keep_part(range(layers), is_first=is_first, is_last=is_last)
    return Stage(model, model.blocks(), is_first=is_first, is_last=is_last)


def _received(model: BenchmarkModel, config: TrainingConfig) -> torch.Tensor:
    """The output of the stage before, in shape and type; nothing for a model without stages."""
    if not isinstance(model, StagedModel):
        return torch.empty(0)
    tp_size, is_sequence_parallel = config.tensor_parallelism()
    shape = model.hidden_shape(config.train_batch_size, tp_size if is_sequence_parallel else 1)
    return torch.empty(shape, dtype=hidden_dtype(config), requires_grad=True)


def _for_one_batch(config: TrainingConfig, layers: int, *, on_cpu: bool) -> TrainingConfig:
    """The settings of a step on one synthetic batch that holds as much as a step of `config` may."""
    is_plain = config.attention == "eager"
    changes: dict[str, Any] = {"num_layers": layers, "data": "synthetic", "eval_samples": 1}
    changes["attention"] = "eager" if is_plain else "sdpa"
    changes["train_samples"] = config.train_batch_size
    if hasattr(config, "synthetic_noise"):  # which takes a second of each long sample
        changes["synthetic_noise"] = 0.0
    if hasattr(config, "unpad"):  # full samples: the most that a step may need
        changes |= {"unpad": False, "synthetic_lengths": "full"}
    if hasattr(config, "attention_dropout") and not (is_plain or on_cpu):
        changes["attention_dropout"] = 0.0
    return config.model_copy(update=changes)


class _Most:
    """The most bytes that are held whenever one looks, but for `own` and gradients of parameters: at the begin of the
    backward pass the gradient of the logits lies beside all activations.
    """

    def __init__(self, held: HeldStorages, model: BenchmarkModel, own: set[int]) -> None:
        self._held, self._model, self._own = held, model, own
        self.bytes = 0

    def look(self) -> None:
        parameters = self._model.parameters()
        gradients = {each.grad.untyped_storage()._cdata for each in parameters if each.grad is not None}
        self.bytes = max(self.bytes, self._held.bytes(without=self._own | gradients))
