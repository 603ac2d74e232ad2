"""Trains a decoder with FSDP2 on real gloo ranks, and writes what torch's own profiler saw gloo carry.

The profiler records in gloo's implementation of a process group; nothing here is of the tracer but the model. The
set-up is written after torch's documentation of fully_shard and torchtitan's parallelize_llama, apply_tp, apply_ac and
clip_grad_norm_. Arguments: a job as JSON, a folder.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.training.benchmarks.driver.training.ranks import start
from workloads.trace.job import TraceJob
from workloads.trace.transformer import Decoder, tokens_of


def sharded(job: TraceJob) -> Any:
    tp = job.tensor_model_parallel_size
    copies = job.replicate
    names = ("copies", "shards", "tp") if copies > 1 else ("shards", "tp")
    sizes = (copies, job.world_size // tp // copies, tp)[-len(names) :]
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    data = mesh[names[:-1]]
    policy: Any = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if job.fsdp_units == "layers":
        model = Decoder(job)
        for layer in model.layers:
            fully_shard(layer, mesh=data, mp_policy=policy)
        return fully_shard(model, mesh=data, mp_policy=policy)
    with torch.device("meta"):
        model = Decoder(replace(job, activation_recompute="none"))
    if tp > 1:
        tensor_parallel(model, mesh["tp"])
    if job.activation_recompute == "full":
        for name, layer in model.layers.named_children():
            model.layers.register_module(name, checkpoint_wrapper(layer, preserve_rng_state=False))
    for unit in (model.embed_tokens, *model.layers):
        fully_shard(unit, mesh=data, mp_policy=policy, reshard_after_forward=True)
    fully_shard([model.norm, model.lm_head], mesh=data, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=data, mp_policy=policy)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    return model


def tensor_parallel(model: Decoder, mesh: Any) -> None:
    parallelize_module(model, mesh, {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan = {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(), "self_attn": whole,
            "mlp": whole}  # fmt: skip
    plan |= {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"mlp.up_proj": ColwiseParallel()}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)


def _rank(rank: int, job: TraceJob, folder: Path) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=job.world_size)
    model = sharded(job)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        for number in range(job.num_microbatches):
            model.set_requires_gradient_sync(number == job.num_microbatches - 1)
            with loss_parallel():
                model(tokens_of(job)).backward()
        if job.fsdp_units == "layers":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            gradients = [parameter.grad for parameter in model.parameters()]
            norm: Any = torch.nn.utils.get_total_norm(gradients)
            torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm.full_tensor())
        optimizer.step()
    profile.export_chrome_trace(str(folder / f"rank{dist.get_rank()}.json"))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


def main() -> None:
    job = TraceJob(**json.loads(sys.argv[1]))
    start(_rank, job.world_size, job, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
