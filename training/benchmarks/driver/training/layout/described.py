"""Describes a training to the memory model that predict and sweep have, where that knows what its ranks hold.

It knows dense decoders on GPUs: Adam's moments, bfloat16, attention as one kernel, whole sequences; pipelines of equal
stages under FSDP2. What else is trained (BERT, GLM, experts, divided sequences, LAMB, float32), and a CPU's memory,
memory_estimate and stage_estimate trace.
"""

import torch
from torch.torch_version import TorchVersion

from training.benchmarks.driver.training.settings.settings import TrainingConfig
from workloads.job import memory
from workloads.job.training_job import ELEMENTWISE, TrainingJob

REPLICAS = 2
"""A replica holds the same however many there are."""


def bytes_of_ranks(
    config: TrainingConfig, *, world_size: int, per_node: int, allocated: bool = False
) -> list[float] | None:
    """Peaks in bytes on each rank of a pipeline, or on one rank, by predict's memory model; None: it does not know.

    allocated: without what the allocator keeps: for streams whose tensors are not there at the peak, and fragments.
    """
    job = described_job(config, world_size=world_size, per_node=per_node)
    if job is None:
        return None
    return [memory.GIB * (each.allocated if allocated else each.reserved) for each in memory.memory_of(job)]


def described_job(config: TrainingConfig, *, world_size: int, per_node: int) -> TrainingJob | None:
    """The job that holds what a step of these settings does on GPUs; None: the memory model does not know it."""
    model, (tp_size, is_sequence_shared) = config.described_model(), config.tensor_parallelism()
    if model is None or not _is_known(config) or tp_size > model["kv_heads"]:
        return None
    shards = config.ranks_of_a_copy(world_size=world_size, per_node=min(per_node, world_size))
    is_replicated, (pp_size, chunks) = config.strategy == "ddp", config.pipeline_parallelism()
    copies = REPLICAS if is_replicated else max(1, world_size // tp_size // pp_size)
    if not is_replicated and shards == 1 < copies:
        return None
    recompute = config.recompute
    return TrainingJob(
        name="", gpu="", gpus=world_size, gpus_per_node=per_node, precision=config.precision, hidden=model["hidden"],
        ffn=model["ffn"], layers=model["layers"], heads=model["heads"], kv_heads=model["kv_heads"],
        head_dim=model["hidden"] // model["heads"], vocab=model["vocab"], gated=bool(model["swiglu"]),
        seq=model["seq"], mbs=config.train_batch_size, micro_batches=config.gradient_accumulation_steps, tp=tp_size,
        sp=is_sequence_shared, pp=pp_size, vpp=chunks, cp=1, cp_comm="a2a", dp=copies, ep=1,
        fsdp=1 if is_replicated else shards, experts=0, topk=0, moe_ffn=0, shared_ffn=0, dense_layers=0, latent=None,
        recompute=ELEMENTWISE if recompute == "selective" else recompute, distributed_optimizer=False, grad_bytes=4,
        overlap=True, fused_loss=False, tied=bool(model["tied_embeddings"]),
        compiled=config.compile_backend is not None, autocast=are_norms_cast(),
        whole_logits=True,
    )  # fmt: skip


def _is_known(config: TrainingConfig) -> bool:
    model, (pp_size, chunks) = config.described_model() or {}, config.pipeline_parallelism()
    return (
        config.precision == "bf16"
        and "experts" not in model
        and config.context_parallelism() == 1
        and (pp_size == 1 or config.strategy == "fsdp")
        and config.num_layers % (pp_size * chunks) == 0
        and config.attention != "eager"
        and config.optimizer != "lamb"
    )


def are_norms_cast() -> bool:
    """Whether autocast has norms in float32 on a GPU."""
    return TorchVersion(torch.__version__) >= TorchVersion("2.12.0a0")
