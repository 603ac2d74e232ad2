"""Runs one rank of a training with FSDP2 on fake tensors: a decoder whose parts are given to fully_shard.

What is a unit, and what tensor parallelism splits, is either torch's example (each layer, then the whole) or as
torchtitan's parallelize_llama sets it up (of 2025): embedding, each layer, norm with head, then the whole.
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from workloads.job.parameters import TORCHTITAN
from workloads.rows.ranks import Ranks
from workloads.trace import groups, shims
from workloads.trace.job import TraceJob
from workloads.trace.recorder import Recorder
from workloads.trace.transformer import Decoder, tokens_of


def trace(job: TraceJob, recorder: Recorder) -> groups.Named:
    """Train `job.iterations` iterations of the job's rank under the recorder. Returns its groups."""
    mesh = _mesh(job)
    found: groups.Named = {}
    for name in mesh.mesh_dim_names or ():
        group = mesh.get_group(name)
        found[group.group_name] = name, Ranks.of(dist.get_process_group_ranks(group))
    data = mesh[tuple(name for name in mesh.mesh_dim_names or () if name != "tp")]
    tensor = mesh["tp"] if job.tensor_model_parallel_size > 1 else None
    if recorder.kernels is not None:
        shims.shapes_of_others(recorder.kernels)
    with FakeTensorMode(), recorder:
        # As torchtitan does: parts of tensors that have no data yet are not sent. Tied weights would be made twice.
        with nullcontext() if tensor is None else torch.device("meta"):
            model = Decoder(job)
        recorder.watch(model)
        if tensor is not None:
            split(model, tensor, gated=job.swiglu)
        # It joins meshes, which are tensors of data (torch 2.13); the parameters are fake.
        with unset_fake_temporarily():
            sharded = shard(model, data, job)
        if tensor is not None:
            model.to_empty(device="cpu")
        # Fused, for a fake number of steps has no value.
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        for _ in range(job.iterations):
            recorder.next_iteration()
            for number in range(job.num_microbatches):
                sharded.set_requires_gradient_sync(number == job.num_microbatches - 1)
                with nullcontext() if tensor is None else loss_parallel():
                    with recorder.during("forward", number):
                        loss = model(tokens_of(job))
                    with recorder.during("backward", number):
                        loss.backward()
            with recorder.during("step"):
                if job.clip_grad:
                    clip(model, job.clip_grad)
                optimizer.step()
                optimizer.zero_grad()
    return found


def _mesh(job: TraceJob) -> DeviceMesh:
    """The ranks by copy, shard and part of a tensor, the last one neighbours; axes of one rank are left out."""
    sizes = {"dp_replicate": job.replicate, "dp_shard": job.data_parallel_size // job.replicate}
    sizes["tp"] = job.tensor_model_parallel_size
    axes = [name for name, size in sizes.items() if size > 1 or name == "dp_shard"]
    return init_device_mesh("cpu", tuple(sizes[name] for name in axes), mesh_dim_names=tuple(axes))


def split(model: Decoder, mesh: DeviceMesh, *, gated: bool) -> None:
    """Tensor parallelism with split sequences and logits, as torchtitan's apply_tp. gated: MLPs have a gate."""
    rows, columns, replicated = Shard(1), Shard(-1), Replicate()
    parallelize_module(model, mesh, {
        "embed_tokens": RowwiseParallel(input_layouts=replicated, output_layouts=rows),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=rows, output_layouts=columns, use_local_output=False),
    })  # fmt: skip
    whole = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(replicated,))
    gate = {"mlp.gate_proj": ColwiseParallel()} if gated else {}
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": whole,
            "self_attn.q_proj": ColwiseParallel(),
            "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(output_layouts=rows),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": whole,
            **gate,
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=rows),
        })  # fmt: skip


def shard(model: Decoder, mesh: DeviceMesh, job: TraceJob) -> Any:
    """Give the units to fully_shard. reshard_after_forward None is torch's default for a unit, torchtitan's for all."""
    reduced = torch.float32 if job.grad_reduce_in_fp32 else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    given: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    after = job.reshard_after_forward
    if job.fsdp_units != TORCHTITAN:
        for layer in model.layers:
            fully_shard(layer, **given, reshard_after_forward=after)
        return fully_shard(model, **given, reshard_after_forward=after)
    for unit in (model.embed_tokens, *model.layers):
        fully_shard(unit, **given, reshard_after_forward=after is not False)
    # Gathered again at once in the backward pass, where nothing else is asked for.
    fully_shard([model.norm, model.lm_head], **given, reshard_after_forward=after is True)
    return fully_shard(model, **given)


def clip(model: torch.nn.Module, most: float) -> None:
    """Clip by the norm over all ranks, as torchtitan's clip_grad_norm_; torch's own sends the same on one mesh."""
    parameters = list(model.parameters())
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)
