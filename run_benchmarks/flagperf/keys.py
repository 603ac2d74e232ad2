"""Defines the outcome of every known key of FlagPerf's configs; docs/how-to/from-flagperf.md shows these tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Fate:
    """The outcome of a key: kept (`to` is its own name), renamed, or meaningless (`to` is None, `why` says why).

    `convert` makes our value from FlagPerf's; None from it drops the key. The value of a `derived` one depends on other
    keys and on the number of ranks: `case_configs.computed` has it.
    """

    to: str | None
    why: str = ""
    convert: Convert | None = None
    derived: bool = False


def kept(*names: str) -> dict[str, Fate]:
    """Keys that exist here, too."""
    return {name: Fate(name) for name in names}


def renamed(**names: str) -> dict[str, Fate]:
    """Keys that have another name here."""
    return {key: Fate(name) for key, name in names.items()}


def meaningless(why: str, *names: str) -> dict[str, Fate]:
    """Keys without a meaning here, and the reason."""
    return {name: Fate(None, why) for name in names}


def _positive(value: Any) -> Any:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _cpm_schedule(style: Any) -> str:
    """Our name of a decay style of FlagPerf's CPM, which keeps the rate where it knows no other."""
    return {"linear": "flagperf_cpm", "cosine": "flagperf_cpm_cosine"}.get(str(style).lower(), "constant")


CLUSTER: dict[str, Fate] = {
    **kept("HOSTS"),
    "SSH_PORT": Fate("SSH_PORT", "a number here", int),
    **meaningless("ports of TensorFlow's strategy; torchrun's master port is found each round", "HOSTS_PORTS"),
    **meaningless("torchrun's master port is found each round, from MASTER_PORT on", "MASTER_PORT"),
}
TEST: dict[str, Fate] = {
    **kept(
        "VENDOR", "CASES", "TEST_TYPE", "ACCE_CONTAINER_OPT", "ACCE_VISIBLE_DEVICE_ENV_NAME", "PIP_SOURCE",
        "FLAGPERF_PATH_HOST", "FLAGPERF_PATH_CONTAINER", "FLAGPERF_LOG_PATH_HOST", "FLAGPERF_LOG_PATH_CONTAINER",
        "FLAGPERF_LOG_LEVEL", "SHM_SIZE", "CLEAR_CACHES",
    ),
    "FLAGPERF_PATH": Fate("FLAGPERF_PATH_HOST"),
    "FLAGPERF_LOG_PATH": Fate("FLAGPERF_LOG_PATH_HOST"),
}  # fmt: skip
COMMON: dict[str, Fate] = {
    **kept(
        "train_batch_size", "eval_batch_size", "gradient_accumulation_steps", "max_steps", "seed", "weight_decay",
        "log_freq", "num_workers", "num_layers", "hidden_size", "num_attention_heads", "hidden_dropout",
        "attention_dropout", "max_position_embeddings", "vocab_size", "max_seq_length", "seq_length",
        "max_predictions_per_seq", "warmup", "target_mlm_accuracy", "target_accuracy", "target_embedding_average",
        "learning_rate",
    ),
    **renamed(
        lr="learning_rate", weight_decay_rate="weight_decay", opt_lamb_beta_1="beta1", opt_lamb_beta_2="beta2",
        adam_beta1="beta1", adam_beta2="beta2", adam_eps="eps", lr_decay_ratio="min_lr_ratio",
        lr_decay_style="lr_schedule", clip_grad="max_grad_norm", dist_backend="backend",
        checkpoint_activations="activation_checkpointing", tokenizer_vocab_model="vocab_file", seqlength="seq_length",
        batchsize="train_batch_size", datafilename="train_file",
    ),
    "eval_interval_samples": Fate("eval_interval_samples", "0 and -1 mean none", _positive),
    "init_checkpoint": Fate("init_checkpoint", "", lambda value: value or None),
    "max_samples_termination": Fate("max_samples", "", _positive),
    "eval_iter_start_samples": Fate("eval_start_samples", "", int),
    "lr_decay_iters": Fate("lr_decay_steps", "", _positive),
    "fp16": Fate("precision", "'fp16' or 'fp32'", lambda value: "fp16" if value else "fp32"),
    "loss_scale": Fate("init_loss_scale", "the first one; it adapts itself", lambda value: value or None),
    "warmup_proportion": Fate("warmup", "", float),
    "train_data": Fate("train_files", "", lambda value: value or None),
    "eval_data": Fate("eval_files", "", lambda value: value or None),
    "epoch": Fate("max_epochs", "", _positive),
    "epochs": Fate("max_epochs", "", _positive),
    "theoryflops": Fate("peak_tflops", "in TFLOPS", lambda value: value / 1e12),
    "flashattn": Fate("attention", "", lambda value: "flash_attention_2" if value else "sdpa"),
    **meaningless(
        "the case says it", "vendor", "name", "data_dir", "train_dir", "eval_dir", "output_dir", "device", "use_cuda",
    ),
    **meaningless("torchrun gives it to each rank", "local_rank", "use_env", "n_device", "n_gpu"),
    **meaningless(
        "the workload chooses the best kernels that work (optimizer_impl, attention)",
        "fused_gelu_bias", "fused_mha", "fused_dropout_add", "enable_fuse_dropout", "disable_fuse_mask",
        "disable_fuse_scale", "disable_fuse_qkv", "disable_apex_softmax", "dense_seq_output", "opt_level",
        "use_cuda_graph", "cuda_graph_mode", "max_iterations_per_graph", "enable_stream", "bypass_amp",
    ),
    **meaningless(
        "data parallelism is torch's own here (strategy)",
        "ddp_type", "use_ddp", "use_gradient_as_bucket_view", "distributed_lamb", "allreduce_post_accumulation",
        "allreduce_post_accumulation_fp16", "dwu_group_size", "dwu_num_blocks", "dwu_num_chunks", "dwu_num_rs_pg",
        "dwu_num_ar_pg", "dwu_num_ag_pg", "dwu_overlap_reductions", "dwu_e5m2_allgather",
    ),
    "unpad": Fate("unpad"),
    **meaningless("the kernel decides where attention needs padding", "unpad_fmha", "pad"),
    **meaningless("each rank keeps its samples", "exchange_padding"),
    **meaningless("the loss scale adapts itself", "dynamic_loss_scale", "loss_scale_window", "min_scale", "hysteresis"),
    **meaningless("an object of FlagPerf's own code", "training_event", "training_event_instance", "grad_scaler"),
    **meaningless(
        "checkpoints are written where checkpoint_dir says",
        "save", "save_interval", "no_save_optim", "no_save_rng", "save_checkpoint", "resume_init_checkpoint",
        "keep_n_most_recent_checkpoints", "num_samples_per_checkpoint", "min_samples_to_start_checkpoints",
        "resume_from_checkpoint", "verify_checkpoint", "init_tf_checkpoint", "checkpoint_num_layers",
    ),
    **meaningless("the evaluation reads its whole set each time", "cache_eval_data", "num_eval_examples"),
    **meaningless("the step the warm-up begins at is 0", "start_warmup_step"),
    "warmup_steps": Fate("warmup", "divided by the steps of the decline, where it is not 0", derived=True),
    **meaningless("FlagPerf does not read it where it runs", "eval_iter_samples", "train_mlm_accuracy_window_size",
                  "num_epochs_to_generate_seeds_for", "mem_length", "max_memory_length", "attention_scale", "use_xpu",
                  "do_train", "layernorm_epsilon", "tokenizer_path", "tokenizer_vocab_file", "bert_model",
                  "bert_config_path"),
}  # fmt: skip
# Keys with another meaning for one model.
OF_MODEL: dict[str, dict[str, Fate]] = {
    "cpm": {
        **meaningless("FlagPerf never gives it to the optimizer: Adam's defaults apply", "beta_1", "beta_2", "eps"),
        **meaningless("FlagPerf does not read it where it runs", "epoch"),
        "lr_decay_style": Fate("lr_schedule", "FlagPerf's formula by its name here", _cpm_schedule),
    },
    "bert": {
        **meaningless("that of files is in data_dir: train_files, eval_file", "train_data", "eval_data"),
        "eval_step": Fate("eval_interval_samples", "of steps; FlagPerf's steps are micro-steps", derived=True),
        "eval_interval_samples": Fate(
            "eval_interval_samples", "FlagPerf computes it for 0; eval_step counts before it", derived=True
        ),
        "eval_iter_start_samples": Fate("eval_start_samples", "and one step more", derived=True),
    },
    "bert:paddle": meaningless(
        "FlagPerf's code for Paddle does not read it", "init_checkpoint", "fp16", "loss_scale", "checkpoint_activations"
    ),
}
# Names of FlagPerf's models that are ours under another; frameworks lose their version, which our image decides.
MODELS = {"llama2_7b": "llama", "llama": "llama", "bert": "bert", "glm": "glm", "cpm": "cpm"}
FRAMEWORKS = {"pytorch": "pytorch", "deepspeed": "pytorch", "paddle": "paddle"}
CASE_KEYS = ("model", "framework", "config", "repeat", "nnodes", "nproc", "data_dir_host", "data_dir_container")
# In environment_variables.sh: variables that configure a build of FlagPerf's own kernels, or FlagPerf itself.
BUILD_VARIABLES = ("NVCC_ARGUMENTS", "CONTAINER_MOUNTS", "PYTORCH_BUILD_VERSION", "CFLAGS", "CXXFLAGS")


def fate_of(benchmark: str, key: str) -> Fate | None:
    """The outcome of a key of a config of our model:framework; None if FlagPerf has no such key."""
    model = benchmark.partition(":")[0]
    return OF_MODEL.get(benchmark, {}).get(key) or OF_MODEL.get(model, {}).get(key) or COMMON.get(key)


def markdown_table() -> str:
    """The table of docs/how-to/from-flagperf.md: a row for the keys of a file with the same outcome and reason."""
    tables = [("cluster_conf.py", CLUSTER), ("test_conf.py", TEST), ("a case config", COMMON)]
    tables += [(f"a case config of {model}", fates) for model, fates in OF_MODEL.items()]
    tables += [("a case", {key: Fate(key) for key in CASE_KEYS})]
    built = "for a build of FlagPerf's own kernels"
    tables += [("environment_variables.sh", {name: Fate(None, built) for name in BUILD_VARIABLES})]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for file, fates in tables:
        for key, fate in fates.items():
            ours = "" if fate.to is None else "the same" if fate.to == key else f"`{fate.to}`"
            rows.setdefault((file, ours, fate.why), []).append(f"`{key}`")
    lines = [f"| {file} | {', '.join(keys)} | {ours} | {why} |" for (file, ours, why), keys in rows.items()]
    return "\n".join(["| FlagPerf | keys | ours | why |", "| --- | --- | --- | --- |", *lines]) + "\n"
