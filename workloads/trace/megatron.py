"""Runs one rank of Megatron-core's GPT: builds the model, its gradients' buffers and optimizer, and trains."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import p2p_communication, schedules
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module

from workloads.job.parameters import TRAINING
from workloads.job.routing import routing
from workloads.rows.ranks import Ranks
from workloads.trace import context_parallel, groups, inference, shims
from workloads.trace.job import TraceJob
from workloads.trace.megatron_model import model_chunk, transformer_config
from workloads.trace.recorder import Recorder
from workloads.trace.stand_ins import OnMeta


def trace(job: TraceJob, recorder: Recorder) -> groups.Named:
    """Train `job.iterations` iterations of the job's rank under the recorder. Returns its groups."""
    shims.megatron()
    if job.context_parallel_size > 1:
        context_parallel.load(recorder)
    if job.own_groups or job.world_size > shims.MANY_RANKS:
        shims.only_own_groups(parallel_state, job.rank)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=job.tensor_model_parallel_size,
        pipeline_model_parallel_size=job.pipeline_model_parallel,
        virtual_pipeline_model_parallel_size=job.virtual_pipeline if job.virtual_pipeline > 1 else None,
        context_parallel_size=job.context_parallel_size,
        expert_model_parallel_size=job.expert_model_parallel_size,
        expert_tensor_parallel_size=job.expert_tensor_parallel_size,
        create_gloo_process_groups=False,
    )
    if job.num_experts:
        _route(job)
    _follow_steps(recorder)
    with OnMeta(), recorder:
        if job.phase != TRAINING:
            inference.steps(job, recorder)
            return named_groups()
        chunks, optimizer, config = _built(job, recorder)
        for iteration in range(job.iterations):
            recorder.next_iteration()
            _iteration(job, recorder, chunks, optimizer, config)
            if iteration == 0 and job.overlap_param_gather:
                for chunk in chunks:
                    chunk.enable_forward_pre_hook()
    return named_groups()


def _built(job: TraceJob, recorder: Recorder) -> tuple[list[Any], Any, TransformerConfig]:
    config = transformer_config(job)
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=job.grad_reduce_in_fp32,
        overlap_grad_reduce=job.overlap_grad_reduce,
        overlap_param_gather=job.overlap_param_gather,
        use_distributed_optimizer=job.use_distributed_optimizer,
        bucket_size=job.bucket_size,
    )
    chunks = []
    for number in range(job.virtual_pipeline):
        model = model_chunk(job, config, number)
        recorder.watch(model)
        chunks.append(
            DistributedDataParallel(
                config=config, ddp_config=ddp, module=Float16Module(config, model), disable_bucketing=number > 0
            )
        )
    if job.overlap_grad_reduce:
        config.no_sync_func = _one_or_all([chunk.no_sync for chunk in chunks])
        config.grad_sync_func = _one_or_all([_in_backward(recorder, chunk.start_grad_sync) for chunk in chunks])
    config.finalize_model_grads_func = _finalized(recorder)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=job.use_distributed_optimizer,
            overlap_param_gather=job.overlap_param_gather,
            clip_grad=job.clip_grad,
        ),
        chunks,
        use_gloo_process_groups=False,
    )
    if job.overlap_param_gather:
        # Megatron's training loop runs its first iteration with the parameters as loaded.
        for chunk in chunks:
            chunk.disable_forward_pre_hook(param_sync=False)
    return chunks, optimizer, config


def _in_backward(recorder: Recorder, function: Any) -> Any:
    """The schedules start reductions also between two backward steps."""

    def start(*given: Any, **named: Any) -> Any:
        with recorder.during("backward", recorder.micro_batch):
            return function(*given, **named)

    return start


def _one_or_all(functions: list[Any]) -> Any:
    return functions[0] if len(functions) == 1 else functions


def _route(job: TraceJob) -> None:
    """Give the dispatchers the job's routing."""
    route = routing(
        job.routing,
        tokens=job.tokens_per_rank,
        topk=job.moe_router_topk,
        experts=job.num_experts,
        ep=job.expert_model_parallel_size,
        etp=job.expert_tp,
    )
    rank = dist.get_rank(parallel_state.get_expert_tensor_and_model_parallel_group())
    shims.dispatch(route, rank)


def _finalized(recorder: Recorder) -> Any:
    def finalize(*given: Any, **named: Any) -> Any:
        with recorder.during("gradients"):
            return finalize_model_grads(*given, **named)

    return finalize


def _iteration(job: TraceJob, recorder: Recorder, chunks: list[Any], optimizer: Any, config: TransformerConfig) -> None:
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    _passes(job, chunks, config)
    with recorder.during("step"):
        optimizer.step()


def _passes(job: TraceJob, chunks: list[Any], config: TransformerConfig) -> None:
    """All micro-batches; with none, `deep.without_passes`, what follows them runs on gradients that nobody filled."""
    if not job.num_microbatches:
        config.finalize_model_grads_func(chunks)
        return
    schedules.get_forward_backward_func()(
        forward_step_func=_forward(job),
        data_iterator=[None] * len(chunks) if len(chunks) > 1 else None,
        model=chunks if len(chunks) > 1 else chunks[0],
        num_microbatches=job.num_microbatches,
        seq_length=job.seq_length,
        micro_batch_size=job.micro_batch,
        forward_only=False,
    )


def _forward(job: TraceJob) -> Any:
    """The forward step of GPT pretraining: tokens, their positions and labels, the loss over tokens."""
    shape = job.micro_batch, job.seq_length // job.context_parallel_size
    tokens = torch.zeros(shape, dtype=torch.int64)
    mask = torch.zeros((1, 1, shape[1], shape[1]), dtype=torch.bool)

    def loss(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        total = output.float().sum()
        return total, torch.ones((), dtype=torch.int32), {"lm loss": total.detach()}

    def step(_: object, model: Any) -> tuple[torch.Tensor, Any]:
        return model(tokens, tokens, mask, labels=tokens), loss

    return step


def _follow_steps(recorder: Recorder) -> None:
    """Tell the recorder which micro-batch runs forwards or backwards and which way a message goes."""
    forward, backward = schedules.forward_step, schedules.backward_step
    numbers: dict[int, int | None] = {}

    def forward_step(*given: Any, **named: Any) -> Any:
        with recorder.during("forward", named.get("current_microbatch")):
            output, tokens = forward(*given, **named)
        first = output[0] if isinstance(output, list) else output
        numbers[id(first)] = named.get("current_microbatch")
        return output, tokens

    def backward_step(input_tensor: Any, output_tensor: Any, *given: Any, **named: Any) -> Any:
        first = output_tensor[0] if isinstance(output_tensor, list) else output_tensor
        with recorder.during("backward", numbers.pop(id(first), None)):
            return backward(input_tensor, output_tensor, *given, **named)

    schedules.forward_step, schedules.backward_step = forward_step, backward_step
    ways = {"tensor_send_prev": "backward", "tensor_recv_prev": "forward",
            "tensor_send_next": "forward", "tensor_recv_next": "backward"}  # fmt: skip
    for name in ("_p2p_ops", "_batched_p2p_ops"):
        send = getattr(p2p_communication, name)

        def sent(*, _send: Any = send, **named: Any) -> Any:
            recorder.directions = {id(named[key]): way for key, way in ways.items() if named[key] is not None}
            return _send(**named)

        setattr(p2p_communication, name, sent)


def named_groups() -> groups.Named:
    """The groups of this rank, by the getters of Megatron's parallel_state."""
    # With one instance of the distributed optimizer, its group is every rank.
    getters: dict[str, Callable[[], Any]] = {
        "tp": lambda: parallel_state.get_tensor_model_parallel_group(False),
        "pp": lambda: parallel_state.get_pipeline_model_parallel_group(False),
        "dp": parallel_state.get_data_parallel_group,
        "dp_cp": lambda: parallel_state.get_data_parallel_group(with_context_parallel=True),
        "cp": lambda: parallel_state.get_context_parallel_group(False),
        "mp": lambda: parallel_state.get_model_parallel_group(False),
        "embedding": lambda: parallel_state.get_embedding_group(False),
        "position_embedding": lambda: parallel_state.get_position_embedding_group(False),
        "tp_dp": lambda: parallel_state.get_tensor_and_data_parallel_group(False),
        "tp_dp_cp": lambda: parallel_state.get_tensor_and_data_parallel_group(False, with_context_parallel=True),
        "tp_cp": lambda: parallel_state.get_tensor_and_context_parallel_group(False),
        "ep": lambda: parallel_state.get_expert_model_parallel_group(False),
        "expert_tp": lambda: parallel_state.get_expert_tensor_parallel_group(False),
        "tp_ep": lambda: parallel_state.get_expert_tensor_and_model_parallel_group(False),
        "tp_ep_pp": lambda: parallel_state.get_expert_tensor_model_pipeline_parallel_group(False),
        "expert_dp": lambda: parallel_state.get_expert_data_parallel_group(False),
        "world": lambda: parallel_state.get_intra_distributed_optimizer_instance_group(False),
    }
    world = dist.group.WORLD
    assert world is not None
    found: groups.Named = {world.group_name: ("world", Ranks.of(range(dist.get_world_size())))}
    for name, getter in getters.items():
        group = getter()
        if group is not None and group.group_name not in found:
            found[group.group_name] = name, Ranks.of(dist.get_process_group_ranks(group))
    return found
