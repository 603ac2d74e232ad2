"""Writes a layout as configurations that can be started: of Megatron-LM, of torchtitan, and a case of ours."""

from pathlib import Path
from typing import NamedTuple

from common.whole_files import write_whole
from simulation.predict.iteration import Prediction


class ReadyConfig(NamedTuple):
    """A file's name and its text."""

    name: str
    text: str


def configs(found: Prediction) -> list[ReadyConfig]:
    """The files of a layout."""
    job = found.job
    said = f"{job.name} on {job.gpus} {found.machine.gpu}: {found.ms:.0f} ms predicted"
    words = megatron_arguments(found).replace(" --", " \\\n    --")
    megatron = f"#!/bin/sh\n# {said}. Data, model and checkpoints follow as arguments.\n"
    return [
        ReadyConfig("megatron.sh", f'{megatron}exec torchrun pretrain_gpt.py {words} "$@"\n'),
        ReadyConfig("torchtitan.toml", f"# {said}\n{torchtitan_settings(found)}"),
        ReadyConfig("config_layout.py", f"# {said}\n{our_case(found)}"),
    ]


def write(folder: Path, found: Prediction, *, force: bool) -> list[Path]:
    """Write the files of a layout into a folder.

    Raises:
        InputProblems: a file has other content, and `force` does not overwrite it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in configs(found):
        write_whole(folder / name, [text.encode()], keep_other=not force)
        paths.append(folder / name)
    return paths


def megatron_arguments(found: Prediction) -> str:
    """The arguments of Megatron-LM's pretrain_gpt.py that give this layout."""
    job = found.job
    words = [
        f"--tensor-model-parallel-size {job.tp}", f"--pipeline-model-parallel-size {job.pp}",
        f"--context-parallel-size {job.cp}", f"--micro-batch-size {job.mbs}",
        f"--global-batch-size {job.mbs * job.micro_batches * job.dp}", f"--seq-length {job.seq}",
    ]  # fmt: skip
    if job.vpp > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {job.vpp}")
    if job.ep > 1:
        words.append(f"--expert-model-parallel-size {job.ep}")
    if job.sp:
        words.append("--sequence-parallel")
    if job.recompute == "full":
        words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif job.recompute != "none":
        words.append("--recompute-granularity selective")
    if job.fsdp:
        words.append("--use-torch-fsdp2")
    elif job.distributed_optimizer:
        words.append("--use-distributed-optimizer")
    words.append(
        {"bf16": "--bf16", "fp8": "--bf16 --fp8-format hybrid", "nvfp4": "--bf16 --fp4-format e2m1"}[job.precision]
    )
    return " ".join(words)


def torchtitan_settings(found: Prediction) -> str:
    """The sections of torchtitan's TOML that give this layout: a copy of the weights over `fsdp` ranks, or over all, or
    on each with a whole optimizer.
    """
    job = found.job
    if job.fsdp:
        shards = job.fsdp // job.cp if job.fsdp >= job.cp else job.dp
    else:
        shards = job.dp if job.distributed_optimizer else 1
    mode = "none" if job.recompute == "none" else "full" if job.recompute == "full" else "selective"
    option = '\nselective_ac_option = "op"' if mode == "selective" else ""
    return (
        f"[training]\nlocal_batch_size = {job.mbs}\nglobal_batch_size = {job.mbs * job.micro_batches * job.dp}\n"
        f"seq_len = {job.seq}\n[parallelism]\ndata_parallel_shard_degree = {shards}\n"
        f"data_parallel_replicate_degree = {max(1, job.dp // shards)}\ntensor_parallel_degree = {job.tp}\n"
        f"pipeline_parallel_degree = {job.pp}\ncontext_parallel_degree = {job.cp}\n"
        f'expert_parallel_degree = {job.ep}\n[activation_checkpoint]\nmode = "{mode}"{option}\n'
    )


def our_case(found: Prediction) -> str:
    """The settings of a case of benchmark aicb that sends what a step of this layout sends (dialect framework)."""
    job = found.job
    settings: dict[str, object] = {
        "dialect": "framework", "frame": "FSDP2" if job.fsdp else "Megatron", "num_layers": job.layers,
        "hidden_size": job.hidden, "ffn_hidden_size": job.ffn, "num_attention_heads": job.heads,
        "num_query_groups": job.kv_heads, "kv_channels": job.head_dim, "vocab_size": job.vocab, "swiglu": job.gated,
        "untie_embeddings": not job.tied, "seq_length": job.seq, "micro_batch": job.mbs,
        "global_batch": job.mbs * job.micro_batches * job.dp, "tensor_model_parallel_size": job.tp,
    }  # fmt: skip
    if job.fsdp:
        settings |= {"replicate": max(1, job.dp * job.cp // job.fsdp), "fsdp_units": "torchtitan"}
    else:
        settings |= {
            "pipeline_model_parallel": job.pp, "virtual_pipeline": job.vpp, "context_parallel_size": job.cp,
            "enable_sequence_parallel": job.sp, "use_distributed_optimizer": job.distributed_optimizer,
        }  # fmt: skip
        settings |= {"sliding_window": job.window, "full_attention_every": job.full_every} if job.window else {}
    if job.experts:
        settings |= {
            "moe_enable": True, "moe_grouped_gemm": True, "num_experts": job.experts, "moe_router_topk": job.topk,
            "moe_ffn_hidden_size": job.moe_ffn, "expert_model_parallel_size": job.ep,
            "moe_first_dense_layers": job.dense_layers,
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
