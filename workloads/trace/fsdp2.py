"""Runs one rank of a training with FSDP2: a decoder, each layer and the whole given to fully_shard, on fake tensors."""

from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from workloads.rows.traced_op import Ranks
from workloads.trace import groups
from workloads.trace.job import TraceJob
from workloads.trace.recorder import Recorder
from workloads.trace.transformer import Decoder, tokens_of


def trace(job: TraceJob, recorder: Recorder) -> groups.Named:
    """Train `job.iterations` iterations of the job's rank under the recorder. Returns its groups."""
    shard = job.world_size // job.replicate
    shape = (shard,) if job.replicate == 1 else (job.replicate, shard)
    names = ("dp_shard",) if job.replicate == 1 else ("dp_replicate", "dp_shard")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    found: groups.Named = {}
    for name in names:
        group = mesh.get_group(name)
        found[group.group_name] = name, Ranks.of(dist.get_process_group_ranks(group))
    with FakeTensorMode(), recorder:
        model = Decoder(job)
        recorder.watch(model)
        reduced = torch.float32 if job.grad_reduce_in_fp32 else torch.bfloat16
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
        given: dict[str, Any] = {
            "mesh": mesh, "mp_policy": policy, "reshard_after_forward": job.reshard_after_forward,
        }  # fmt: skip
        for layer in model.layers:
            fully_shard(layer, **given)
        sharded: Any = fully_shard(model, **given)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
        for _ in range(job.iterations):
            recorder.next_iteration()
            for number in range(job.num_microbatches):
                sharded.set_requires_gradient_sync(number == job.num_microbatches - 1)
                with recorder.during("forward", number):
                    loss = model(tokens_of(job))
                with recorder.during("backward", number):
                    loss.backward()
            with recorder.during("step"):
                if job.clip_grad:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), job.clip_grad, foreach=False)
                optimizer.step()
                optimizer.zero_grad()
    return found
