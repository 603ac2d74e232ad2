"""Writes a layout as configurations that can be started: of Megatron-LM, of torchtitan, and a case of ours."""

from typing import NamedTuple

from simulation.predict.iteration import Prediction
from workloads.job.parameters import CP_COMM_TYPES
from workloads.job.training_job import TrainingJob
from workloads.job.weights import stage_sizes


class ReadyConfig(NamedTuple):
    """A file's name and its text."""

    name: str
    text: str


def configs(found: Prediction) -> list[ReadyConfig]:
    """The files of a layout, of those that can run it."""
    job = found.job
    said = f"# {job.name} on {job.gpus} {found.machine.gpu}: {found.ms:.0f} ms predicted\n"
    case, titan = our_case(found), torchtitan_settings(found)
    files = {
        "megatron.sh": megatron_script(found, said),
        "torchtitan_layout.py": titan and said + titan,
        "config_layout.py": case and said + case,
    }
    return [ReadyConfig(name, text) for name, text in files.items() if text]


def megatron_script(found: Prediction, said: str) -> str:
    """A script that starts Megatron-LM on one server, `said` in its head; "": it has no such layout."""
    words, job = megatron_arguments(found), found.job
    if not words:
        return ""
    # Up to Hopper Megatron-LM starts with tensor or context parallelism only so, and FSDP2 only without.
    queue = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" if job.tp * job.cp > 1 and not job.fsdp else ""
    each = next(size for size in range(job.gpus_per_node, 0, -1) if job.gpus % size == 0)
    start = f"torchrun --nnodes {job.gpus // each} --nproc-per-node {each} pretrain_gpt.py"
    lines = words.replace(" --", " \\\n    --")
    return (
        f"#!/bin/sh\n{said}# Model, data and checkpoints follow as arguments. PET_NODE_RANK, PET_MASTER_ADDR and\n"
        f'# PET_MASTER_PORT tell torchrun of the servers.\n{queue}exec {start} \\\n    {lines} "$@"\n'
    )


def megatron_arguments(found: Prediction) -> str:
    """The arguments of Megatron-LM's pretrain_gpt.py that give this layout; "": there are several copies, or its FSDP2
    has no stages, experts in groups or tied embeddings (validate_args of megatron/training/arguments.py), or contexts
    are exchanged in a hierarchy, whose sizes no job says.
    """
    job = found.job
    torch_only = job.of_torch and (job.pp > 1 or job.ep > 1 or job.tied)
    if torch_only or (job.fsdp and job.fsdp != job.dp * job.cp) or (job.cp > 1 and job.cp_comm == "a2a+p2p"):
        return ""
    words = [
        f"--tensor-model-parallel-size {job.tp}", f"--pipeline-model-parallel-size {job.pp}",
        f"--context-parallel-size {job.cp}", f"--micro-batch-size {job.mbs}",
        f"--global-batch-size {job.mbs * job.micro_batches * job.dp}", f"--seq-length {job.seq}", *_chunks(job),
    ]  # fmt: skip
    if job.experts:
        words.append(f"--expert-model-parallel-size {job.ep} --moe-token-dispatcher-type alltoall --moe-grouped-gemm")
        # Experts are predicted whole; without it they have parts as many as --tensor-model-parallel-size says.
        words.append("--expert-tensor-parallel-size 1")
    if job.cp > 1:
        words.append(f"--cp-comm-type {job.cp_comm}")
    if job.sp:
        words.append("--sequence-parallel")
    if job.recompute == "full":
        words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif job.recompute != "none":
        words.append("--recompute-granularity selective")
    words += _divided(job)
    # Torch's products are timed with a scale for a tensor.
    recipe = "tensorwise" if job.of_torch else job.engine_scaling
    low = {"bf16": "", "fp8": f" --fp8-format hybrid --fp8-recipe {recipe}", "nvfp4": " --fp4-format e2m1"}
    words.append(f"--bf16{low[job.precision]}")
    return " ".join(words)


def _chunks(job: TrainingJob) -> list[str]:
    """The arguments that divide the layers over stages and their chunks; chunk c lies on stage c modulo pp."""
    sizes = stage_sizes(job)
    if len(set(sizes)) == 1:
        return [f"--num-virtual-stages-per-pipeline-rank {job.vpp}"] if job.vpp > 1 else []
    parts = [f"t*{size}" if size else "" for size in sizes]
    return [f"--pipeline-model-parallel-layout 'E{'|'.join(parts)}L'"]


def _divided(job: TrainingJob) -> list[str]:
    """The arguments of optimizer states, and of the communication that the prediction hides behind compute."""
    if job.of_torch:
        return ["--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights"]
    divided = job.distributed_optimizer or bool(job.fsdp)
    words = ["--use-distributed-optimizer"] if divided else []
    if job.fsdp:
        words.append("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params")
        words.append("--ckpt-format fsdp_dtensor")
    if job.overlap and job.dp * job.cp > 1:
        words.append("--overlap-grad-reduce")
        words += ["--overlap-param-gather"] if divided else []
    return [*words, "--tp-comm-overlap"] if job.overlap and job.sp and job.tp > 1 else words


def torchtitan_settings(found: Prediction) -> str:
    """A module of torchtitan 0.3 that gives a configuration this layout: a copy of the weights over `fsdp` ranks, or
    over all, or on each with a whole optimizer. Where torchtitan has the model, `layout` is its own. "": torchtitan
    divides experts over tensor-parallel ranks where it does not distribute them.
    """
    job = found.job
    if job.experts and job.tp > job.ep == 1:
        return ""
    kind = {"none": "", "full": "FullAC"}.get(job.recompute, "SelectiveAC")
    model = TORCHTITAN_MODELS.get(job.name)
    lines = [
        "# MODULE=torchtitan_layout CONFIG=layout ./run_train.sh",
        *(["# Its model's converters quantise products, not this."] if job.precision != "bf16" else []),
        *([f"from torchtitan.distributed.activation_checkpoint import {kind}"] if kind else []),
        *([f"from torchtitan.models.{model[0]}.config_registry import {model[1]}"] if model else []),
        "", "", "def with_layout(config):", *_settings(job),
        f"    config.activation_checkpoint = {f'{kind}.Config()' if kind else None}",
        f"    config.compile.enable = {job.compiled}",
        "    return config",
        *(["", "", "def layout():", f"    return with_layout({model[1]}())"] if model else []), "",
    ]  # fmt: skip
    return "\n".join(lines)


TORCHTITAN_MODELS = {
    "llama3_8b": ("llama3", "llama3_8b"), "llama3_70b": ("llama3", "llama3_70b"),
    "llama3_405b": ("llama3", "llama3_405b"), "deepseek_v3": ("deepseek_v3", "deepseek_v3_671b"),
}  # fmt: skip
"""Our presets that torchtitan 0.3 has: its module of models, and the function of the configuration."""


def _settings(job: TrainingJob) -> list[str]:
    """The lines that set batch, sizes of groups and, of a pipeline, its schedule and the modules of each chunk."""
    if job.fsdp:
        shards = job.fsdp // job.cp if job.fsdp >= job.cp else job.dp
    else:
        shards = job.dp if job.distributed_optimizer else 1
    values: dict[str, object] = {
        "training.local_batch_size": job.mbs * (job.micro_batches if job.pp > 1 else 1),
        "training.global_batch_size": job.mbs * job.micro_batches * job.dp, "training.seq_len": job.seq,
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.data_parallel_replicate_degree": max(1, job.dp // shards),
        "parallelism.tensor_parallel_degree": job.tp, "parallelism.pipeline_parallel_degree": job.pp,
        "parallelism.context_parallel_degree": job.cp, "parallelism.expert_parallel_degree": job.ep,
    }  # fmt: skip
    lines = []
    if job.pp > 1:
        values["parallelism.pipeline_parallel_schedule"] = "Interleaved1F1B" if job.vpp > 1 else "1F1B"
        values["parallelism.pipeline_parallel_microbatch_size"] = job.mbs
        lines = [
            f"    layers = iter(range({job.layers}))",
            f"    parts = [[f'layers.{{next(layers)}}' for _ in range(size)] for size in {stage_sizes(job)}]",
            "    parts[0].insert(0, 'tok_embeddings')",
            "    parts[-1] += ['norm', 'lm_head']",
            "    config.parallelism.module_fqns_per_model_part = parts",
        ]
    return [*(f"    config.{key} = {value!r}" for key, value in values.items()), *lines]


def our_case(found: Prediction) -> str:
    """The settings of a case of benchmark aicb that sends what a step of this layout sends (dialect framework); "": it
    has no such stages or exchange of context-parallel ranks, or no FSDP2 with experts, stages or divided sequences.
    """
    job = found.job
    division = _our_division(job)
    if division is None:
        return ""
    settings: dict[str, object] = {
        "dialect": "framework", "frame": "FSDP2" if job.fsdp else "Megatron", "num_layers": job.layers,
        "hidden_size": job.hidden, "ffn_hidden_size": job.ffn, "num_attention_heads": job.heads,
        "num_query_groups": job.kv_heads, "kv_channels": job.head_dim, "vocab_size": job.vocab, "swiglu": job.gated,
        "untie_embeddings": not job.tied, "seq_length": job.seq, "micro_batch": job.mbs,
        "global_batch": job.mbs * job.micro_batches * job.dp, "tensor_model_parallel_size": job.tp,
    }  # fmt: skip
    settings |= division
    if job.full_share < 1:
        settings |= {"sliding_window": job.window, "full_attention_every": job.full_every}
    if job.precision == "fp8" and not job.fsdp:
        settings["fp8_recipe"] = job.engine_scaling
    if job.experts:
        settings |= {
            "moe_enable": True, "moe_grouped_gemm": True, "num_experts": job.experts, "moe_router_topk": job.topk,
            "moe_ffn_hidden_size": job.moe_ffn, "expert_model_parallel_size": job.ep,
            "moe_first_dense_layers": job.dense_layers, "expert_tensor_parallel_size": 1,
        }  # fmt: skip
        settings |= {"moe_shared_expert_size": job.shared_ffn} if job.shared_ffn else {}
    if job.latent is not None:
        at = job.latent
        settings |= {
            "multi_latent_attention": True, "q_lora_rank": at.q_lora, "kv_lora_rank": at.kv_lora,
            "qk_nope_dim": at.nope, "qk_rope_dim": at.rope, "v_head_dim": at.v,
        }  # fmt: skip
        del settings["num_query_groups"], settings["kv_channels"]
    return "".join(f"{key} = {value!r}\n" for key, value in settings.items())


def _our_division(job: TrainingJob) -> dict[str, object] | None:
    """The settings of a case that divide states, layers and sequences; None: there are none."""
    if job.fsdp:
        if job.experts or job.pp * job.cp > 1:
            return None
        return {"replicate": max(1, job.dp // job.fsdp), "fsdp_units": "torchtitan"}
    chunks = stage_sizes(job)
    stages = [set(chunks[stage :: job.pp]) for stage in range(job.pp)]
    middle = {size for each in stages[1:-1] for size in each}
    if any(len(each) > 1 for each in (*stages, middle)) or (job.cp > 1 and job.cp_comm not in CP_COMM_TYPES):
        return None
    ends = {"num_layers_first_stage": job.vpp * chunks[0], "num_layers_last_stage": job.vpp * chunks[-1]}
    return {
        "pipeline_model_parallel": job.pp, "virtual_pipeline": job.vpp, "context_parallel_size": job.cp,
        "enable_sequence_parallel": job.sp, "use_distributed_optimizer": job.distributed_optimizer,
        **(ends if len(set(chunks)) > 1 else {}), **({"cp_comm_type": job.cp_comm} if job.cp > 1 else {}),
    }  # fmt: skip
