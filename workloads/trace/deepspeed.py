"""Runs one rank of a training with DeepSpeed's ZeRO 1, 2 or 3: a decoder of real tensors on CPU."""

from dataclasses import replace

import deepspeed
import torch
import torch.distributed as dist

from workloads.rows.ranks import Ranks
from workloads.trace import groups, shims
from workloads.trace.job import TraceJob
from workloads.trace.recorder import Recorder
from workloads.trace.transformer import Decoder, tokens_of


def trace(job: TraceJob, recorder: Recorder) -> groups.Named:
    """Train `job.iterations` iterations of the job's rank under the recorder. Returns its groups."""
    shims.deepspeed()
    # A fake collective leaves garbage, sometimes NaN, for which DeepSpeed (0.19.8) skips a step: it brings zeros here.
    recorder.zeroes = True
    # Tensors are real here, and ZeRO sends parameters and gradients, which are as large for one token.
    tokens = tokens_of(job if job.computation_enable else replace(job, micro_batch=1, seq_length=1))
    with recorder:
        if job.stage == 3:
            with deepspeed.zero.Init(config_dict_or_path=config(job)):
                model = Decoder(job)
        else:
            model = Decoder(job)
        recorder.watch(model)
        engine, *_ = deepspeed.initialize(
            model=model, config=config(job), optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        )
        for _ in range(job.iterations):
            recorder.next_iteration()
            for number in range(job.num_microbatches):
                with recorder.during("forward", number):
                    loss = engine(tokens)
                with recorder.during("backward", number):
                    engine.backward(loss)
                with recorder.during("step"):
                    engine.step()
    world, data = dist.group.WORLD, engine.data_parallel_group
    assert world is not None
    everyone = Ranks.of(range(job.world_size))
    return {world.group_name: ("world", everyone), data.group_name: ("dp", everyone)}


def config(job: TraceJob) -> dict[str, object]:
    """DeepSpeed's configuration of the job."""
    zero = {
        "stage": job.stage,
        "reduce_bucket_size": job.reduce_bucket_size,
        "allgather_bucket_size": job.allgather_bucket_size,
        "overlap_comm": job.overlap_comm,
        "contiguous_gradients": job.contiguous_gradients,
    }
    if job.stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": job.prefetch_bucket_size,
            "stage3_param_persistence_threshold": job.param_persistence_threshold,
            "stage3_model_persistence_threshold": job.model_persistence_threshold,
            "stage3_max_live_parameters": job.max_live_parameters,
            "stage3_max_reuse_distance": job.max_reuse_distance,
            "sub_group_size": job.sub_group_size,
        }
    return {
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.num_microbatches,
        "gradient_clipping": job.clip_grad,
        **_precision(job),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }


def _precision(job: TraceJob) -> dict[str, object]:
    """With fp16 the first loss is not scaled up: gradients would overflow and the step be skipped."""
    if job.dtype == "float16":
        return {"fp16": {"enabled": True, "initial_scale_power": 0}}
    return {"bf16": {"enabled": True}}
