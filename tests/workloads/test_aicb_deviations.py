"""AICB's behaviour where no recorded case has it: known from running its rules by hand on small models."""

from dataclasses import replace
from pathlib import Path

from tests.workloads.aicb_dialect import generate, simai
from workloads.formats.simai_text import NONE, WorkItem
from workloads.library import CommType, LogItem, Workload, WorkloadArgs

DATA = Path(__file__).parents[1] / "data" / "aicb"
ZERO = WorkloadArgs(
    frame="DeepSpeed", world_size=2, num_layers=1, hidden_size=8, num_attention_heads=2, ffn_hidden_size=16,
    vocab_size=10, seq_length=4, global_batch=4,
)  # fmt: skip
MATRICES = 1 + 7 + 1
"""Embedding, seven weights of the layer, head."""
EXPERTS = WorkloadArgs(
    world_size=4, moe_enable=True, enable_sequence_parallel=True, num_experts=4, moe_router_topk=2, num_layers=1,
    hidden_size=64, num_attention_heads=4, seq_length=32, global_batch=4,
)  # fmt: skip
LATENT_NS = {
    "attention_linear_q_lora": 101, "attention_q_column": 203, "attention_linear_kv_lora": 57,
    "attention_kv_column": 411, "attention_o_row": 999,
}  # fmt: skip


def _with_example(args: WorkloadArgs, path: Path = DATA / "aiob_example.txt") -> WorkloadArgs:
    return replace(args, aiob_enable=True, comp_filepath=str(path))


def _rows(workload: Workload, stage: str) -> list[LogItem]:
    return [item for item in workload if item.stage.startswith(stage)]


def _forward(args: WorkloadArgs) -> list[CommType]:
    """The types of the rows of both forward passes."""
    return [item.comm_type for item in generate(args).epoch(1) if item.stage.startswith("forward")]


def test_prefetched_weights_compute_where_they_are_gathered() -> None:
    """With room for all, the second pass gathers all at the first use, and each later use finds an empty queue."""
    rows = _forward(replace(ZERO, computation_enable=True))
    computed = MATRICES + MATRICES - 1
    assert rows[-computed - 1 :] == [CommType.all_gather, *[CommType.computation] * computed]
    assert rows[: -computed - 1].count(CommType.computation) == MATRICES


def test_weights_that_are_not_prefetched_compute_where_they_are_used() -> None:
    rows = _forward(replace(ZERO, computation_enable=True, prefetch_bucket_size=1, param_persistence_threshold=0))
    assert rows.count(CommType.computation) == 2 * MATRICES
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]


def test_a_bucket_that_begins_with_an_owner_has_an_empty_reduction_before_it() -> None:
    """103 ranks own 8 elements each, and all parameters are multiples of 8."""
    ranks, share = 103, 8
    args = replace(ZERO, stage=2, contiguous_gradients=True, global_batch=ranks, world_size=ranks, reduce_bucket_size=1)
    reductions = [item for item in generate(args) if item.comm_type is CommType.reduce]
    sent = [item for item in reductions if item.msg_size]
    assert [item.msg_size for item in sent] == [2 * share] * ranks
    parameters_after_the_first = 12 - 1
    assert len(reductions) - len(sent) == parameters_after_the_first


def test_zero_with_pipeline_stages_only_steps() -> None:
    workload = generate(replace(ZERO, pipeline_model_parallel=2, num_layers=2), break_rules=True)
    assert len(_rows(workload, "step.has_overflow")) == 2
    assert not _rows(workload, "forward") and not _rows(workload, "backward")


def test_experts_on_one_rank_exchange_nothing_with_aiob_times() -> None:
    def collectives(args: WorkloadArgs) -> list[tuple[str, str]]:
        rows: list[WorkItem] = [item for item in simai(args) if item.name == "mlp_moelayer"]
        return [(row.forward.comm, row.input_gradient.comm) for row in rows[:5]]

    alone = _with_example(EXPERTS)
    assert collectives(alone) == [(NONE, NONE)] * 5
    split = replace(alone, tensor_model_parallel_size=2)
    shared = [("ALLGATHER", "REDUCESCATTER"), ("REDUCESCATTER", "ALLGATHER")]
    assert collectives(split) == [("ALLGATHER", NONE), (NONE, NONE), *shared, (NONE, NONE)]
    exchanged = ("ALLTOALL_EP", "ALLTOALL_EP")
    both = replace(split, expert_model_parallel_size=2)
    assert collectives(both) == [("ALLGATHER", NONE), exchanged, *shared, exchanged]
    assert collectives(EXPERTS) == collectives(both)


def test_measured_latent_projections_are_halved(tmp_path: Path) -> None:
    sections = "".join(
        f"{name}:\n    time_gpu_max: {ns}\n    time_gpu_min: {ns}\n    time_gpu_avg: {ns / 1000}\n"
        for name, ns in LATENT_NS.items()
    )
    times = tmp_path / "times.txt"
    times.write_text((DATA / "aiob_example.txt").read_text().rstrip("\n") + "\n" + sections)
    args = _with_example(replace(EXPERTS, frame="DeepSeek"), times)
    for recompute in (False, True):
        rows = {row.name: row for row in simai(replace(args, recompute_activations=recompute))}
        for name, ns in LATENT_NS.items():
            forward = ns * 2 if recompute else ns
            halves = (forward, ns) if "linear" in name else (forward // 2, ns // 2)
            assert (rows[name].forward.compute_ns, rows[name].weight_gradient.compute_ns) == halves, name


def test_biases_of_latent_projections_count() -> None:
    """q_lora_rank and kv_lora_rank + rope elements more, beside the biases of the split layers."""
    args = replace(EXPERTS, frame="DeepSeek", n_dense_layers=0, n_shared_expert=1, use_distributed_optimizer=True)

    def gathered(args: WorkloadArgs) -> int:
        row = next(item for item in generate(args) if item.stage == "step" and item.comm_type is CommType.all_gather)
        return int(row.comm_bytes)

    heads, vocab = 4, 32000
    up = args.q_lora_rank + heads * (128 + 64) + args.kv_lora_rank + 64 + heads * (128 + 128)
    biases = up + args.hidden_size + args.ffn_size + args.hidden_size + vocab
    assert gathered(replace(args, add_bias_linear=True)) - gathered(args) == 2 * biases
