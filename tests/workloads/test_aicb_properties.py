"""Laws that hold for every valid configuration, and refusals of invalid ones."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.workloads.aicb_dialect import generate, simai
from workloads.dialects.aicb.derived import layers_per_stage
from workloads.dialects.aicb.llama import DeepspeedForCausalLM
from workloads.dialects.aicb.transformer import TransformerModel
from workloads.library import CommGroup, CommType, LogItem, ParameterError, Workload, WorkloadArgs

SIZES = st.sampled_from([1, 2, 4])


@st.composite
def megatron(draw: st.DrawFn, *, moe: bool = False) -> WorkloadArgs:
    """A valid Megatron configuration, small enough to list its rows."""
    tp, pp = draw(SIZES), draw(SIZES)
    dp = draw(SIZES)
    ep = draw(st.sampled_from([size for size in (1, 2, 4) if dp % size == 0])) if moe else 1
    heads = tp * draw(st.integers(1, 3))
    micro_batch = draw(st.integers(1, 3))
    experts = ep * draw(st.integers(1, 3)) if moe else 1
    return WorkloadArgs(
        world_size=tp * pp * dp,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel=pp,
        expert_model_parallel_size=ep,
        num_attention_heads=heads,
        hidden_size=heads * 8 * draw(st.integers(1, 4)),
        ffn_hidden_size=tp * draw(st.integers(1, 64)),
        num_layers=pp * draw(st.integers(1, 4)),
        seq_length=tp * draw(st.integers(1, 64)),
        vocab_size=draw(st.integers(1, 5000)),
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * draw(st.integers(1, 6)),
        epoch_num=draw(st.integers(1, 3)),
        enable_sequence_parallel=moe or draw(st.booleans()),
        use_distributed_optimizer=draw(st.booleans()),
        add_bias_linear=draw(st.booleans()),
        swiglu=draw(st.booleans()),
        moe_enable=moe,
        num_experts=experts,
        moe_router_topk=draw(st.integers(1, experts)),
    )


@st.composite
def deepspeed(draw: st.DrawFn) -> WorkloadArgs:
    """A valid DeepSpeed configuration whose buckets overflow now and then."""
    dp, heads = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    micro_batch = draw(st.integers(1, 2))
    bucket = st.integers(1, 40_000)
    return WorkloadArgs(
        frame="DeepSpeed",
        stage=draw(st.sampled_from([1, 2, 3])),
        world_size=dp,
        num_attention_heads=heads,
        hidden_size=heads * draw(st.integers(1, 8)),
        ffn_hidden_size=draw(st.integers(1, 64)),
        num_layers=draw(st.integers(1, 4)),
        vocab_size=draw(st.integers(1, 300)),
        seq_length=draw(st.integers(1, 64)),
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * draw(st.integers(1, 5)),
        epoch_num=draw(st.integers(1, 4)),
        reduce_bucket_size=draw(bucket),
        allgather_bucket_size=draw(bucket),
        prefetch_bucket_size=draw(bucket),
        max_live_parameters=draw(bucket),
        param_persistence_threshold=draw(st.integers(0, 100)),
        contiguous_gradients=draw(st.booleans()),
    )


def volume(workload: Workload, group: CommGroup, phase: str, *types: CommType) -> int:
    """Bytes over a group in the stages that begin with `phase`."""
    return sum(
        int(item.comm_bytes)
        for item in workload
        if item.comm_group is group and item.stage.startswith(phase) and item.comm_type in types
    )


@settings(max_examples=60, deadline=None)
@given(megatron())
def test_forward_and_backward_tensor_parallel_volumes_match(args: WorkloadArgs) -> None:
    """Without sequence parallelism both directions reduce the same; with it the backward pass gathers once more."""
    workload = generate(args)
    types = (CommType.all_reduce, CommType.all_gather, CommType.reduce_scatter)
    embedding = [
        volume(workload, CommGroup.tp_group, f"{way}.MegatronEmbedding", *types) for way in ("forward", "backward")
    ]
    forward, backward = (
        volume(workload, CommGroup.tp_group, f"{way}.Megatron", *types) - embedding[0]
        for way in ("forward", "backward")
    )
    assert embedding[0] == embedding[1]
    assert 2 * backward == (3 if args.enable_sequence_parallel else 2) * forward
    micro_batches = args.epoch_num * args.num_microbatches
    per_layer = 0 if args.tensor_model_parallel_size == 1 else (4 if args.enable_sequence_parallel else 2)
    assert forward == micro_batches * layers_per_stage(args) * per_layer * args.activation_bytes


@settings(max_examples=60, deadline=None)
@given(megatron())
def test_gradients_and_parameters_go_over_data_parallel_ranks_once_a_step(args: WorkloadArgs) -> None:
    workload = generate(args)
    parameters = TransformerModel(args).numel()
    pp = args.pipeline_model_parallel
    steps = args.epoch_num * (1 if pp == 1 else 2)
    gathered = volume(workload, CommGroup.dp_group, "step", CommType.all_gather)
    reduced = volume(workload, CommGroup.dp_group, "step", CommType.reduce_scatter, CommType.all_reduce)
    assert gathered == (steps * (2 * parameters // pp) if args.use_distributed_optimizer else 0)
    assert reduced == steps * (4 * parameters // pp)


@settings(max_examples=60, deadline=None)
@given(megatron())
def test_row_count_without_pipeline(args: WorkloadArgs) -> None:
    args = replace(args, pipeline_model_parallel=1, world_size=args.world_size // args.pipeline_model_parallel)
    layers, shares = args.num_layers, args.tensor_model_parallel_size > 1
    forward = backward = 0
    if shares:
        forward, backward = 1 + 2 * layers, 1 + 2 * layers
        if args.enable_sequence_parallel:
            forward, backward = 1 + 4 * layers, 1 + 6 * layers
    micro_batch = 2 * shares + forward + 4 + backward
    iteration = args.num_microbatches * micro_batch + (4 if args.use_distributed_optimizer else 3) + 1
    workload = generate(args)
    assert len(workload) == 7 + 1 + args.epoch_num * iteration
    assert sum(1 for _ in workload) == len(workload)


@settings(max_examples=60, deadline=None)
@given(megatron())
def test_each_send_meets_its_receive_on_the_next_stage(args: WorkloadArgs) -> None:
    """Point-to-point rows of neighbouring stages pair up, one per micro-batch and direction."""
    pp, expected = args.pipeline_model_parallel, args.epoch_num * args.num_microbatches
    assume(pp > 1)
    counts = []
    for stage in range(pp):
        tally: Counter[str] = Counter()
        for item, count in generate(args, pp_stage=stage).tally().items():
            tally[item.additional] += count
        counts.append(tally)
    for here, there in pairwise(counts):
        assert here["send_next"] == there["recv_prev"] == expected
        assert there["send_prev"] == here["recv_next"] == expected
    assert not any(counts[0][name] for name in ("send_prev", "recv_prev"))
    assert not any(counts[-1][name] for name in ("send_next", "recv_next"))


@settings(max_examples=40, deadline=None)
@given(megatron(moe=True))
def test_experts_send_in_pairs(args: WorkloadArgs) -> None:
    """What is dispatched is combined, what is permuted is unpermuted, and nothing of it comes back (moe_backward)."""
    by_stage = {key[0]: total.bytes for key, total in generate(args).totals("stage").items()}
    assert by_stage.get("forward.MoE.dispatch") == by_stage.get("forward.MoE.combine")
    assert by_stage.get("forward.MoE.permutation") == by_stage.get("forward.MoE.unpermutation")
    assert not [stage for stage in by_stage if stage.startswith("backward.MoE")]


@settings(max_examples=80, deadline=None)
@given(deepspeed())
def test_zero_reduces_each_gradient_once_a_micro_batch(args: WorkloadArgs) -> None:
    contiguous = args.contiguous_gradients and args.stage == 2 and args.world_size > 1  # deviation `zero2_ranges`
    args = replace(args, contiguous_gradients=contiguous)
    workload = generate(args)
    parameters = DeepspeedForCausalLM(args).numel()
    types = (CommType.all_reduce, CommType.reduce_scatter, CommType.reduce)
    small = {"step.has_overflow", "step.get_grad_norm_direct"}
    reduced = sum(
        count * int(item.comm_bytes)
        for item, count in workload.tally().items()
        if item.comm_type in types and item.stage not in small
    )
    assert reduced == 2 * parameters * args.num_microbatches * args.epoch_num


@settings(max_examples=80, deadline=None)
@given(deepspeed())
def test_zero_gathers_every_parameter(args: WorkloadArgs) -> None:
    """ZeRO 1 and 2 gather all parameters once a step, padded; ZeRO 3 at set-up and in the first forward pass."""
    args = replace(args, contiguous_gradients=False, epoch_num=1)
    workload, parameters = generate(args), DeepspeedForCausalLM(args).numel()
    if args.stage == 3:
        assert volume(workload, CommGroup.dp_group, "init", CommType.all_gather) == 2 * parameters
        first = generate(replace(args, global_batch=args.world_size * args.micro_batch))
        for way in ("forward", "backward"):
            assert volume(first, CommGroup.dp_group, way, CommType.all_gather) == 2 * parameters
    else:
        gathered = volume(workload, CommGroup.dp_group, "step", CommType.all_gather)
        shards = max(parameters // args.allgather_bucket_size, 1)
        assert 2 * parameters <= gathered < 2 * (parameters + shards * args.world_size)


@settings(max_examples=40, deadline=None)
@given(deepspeed(), st.integers(1, 12), st.integers(1, 12))
def test_repetition_is_only_a_way_of_storing(args: WorkloadArgs, micro_batches: int, epochs: int) -> None:
    """A longer run begins with the shorter one: states that repeat are detected, never assumed."""
    step = args.world_size * args.micro_batch
    args = replace(args, contiguous_gradients=False, global_batch=micro_batches * step)
    long = generate(replace(args, epoch_num=epochs + 1))
    short = generate(replace(args, epoch_num=epochs))
    assert list(long)[: len(short)] == list(short)


@settings(max_examples=40, deadline=None)
@given(deepspeed())
def test_simai_text_of_zero_carries_the_bytes_of_the_csv(args: WorkloadArgs) -> None:
    args = replace(args, contiguous_gradients=args.contiguous_gradients and args.stage == 2)
    names = {"all_gather": "ALLGATHER", "all_reduce": "ALLREDUCE", "reduce_scatter": "REDUCESCATTER"}
    expected: Counter[str] = Counter()
    workload = generate(args)
    for (kind,), total in workload.epochs(1, args.epoch_num + 1).totals("comm_type").items():
        expected[names.get(kind, "REDUCESCATTER")] += int(total.bytes)
    text = simai(args)
    found: Counter[str] = Counter()
    for item in text:
        found[item.weight_gradient.comm] += item.weight_gradient.size
        assert item.forward.comm == item.input_gradient.comm == "NONE"
    del found["NONE"]
    assert +found == +expected
    assert text.header is not None
    header = text.header
    said = (header.tp, header.ep, header.pp, header.vpp, header.ga, header.all_gpus)
    assert all(each is not None and each > 0 for each in said)


BREAKAGES: dict[str, dict[str, object]] = {
    "negative hidden size": {"hidden_size": -64},
    "no layers": {"num_layers": 0},
    "unknown frame": {"frame": "Megatorn"},
    "unknown dtype": {"dtype": "banana"},
    "context parallel": {"context_parallel_size": 2},
    "pp_rank": {"pp_rank": 99},
    "no iteration": {"epoch_num": 0},
    "no vocabulary": {"vocab_size": 0},
    "overlap": {"overlap_grad_reduce": True},
    "experts without moe": {"num_experts": 8, "expert_model_parallel_size": 2},
}


@pytest.mark.parametrize("name", BREAKAGES)
@settings(max_examples=10, deadline=None)
@given(args=megatron())
def test_a_broken_configuration_is_refused(name: str, args: WorkloadArgs) -> None:
    with pytest.raises(ParameterError):
        generate(replace(args, **BREAKAGES[name]))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(megatron(), st.integers(-5, 200))
def test_a_batch_that_does_not_divide_is_refused(args: WorkloadArgs, global_batch: int) -> None:
    step = args.data_parallel_size * args.micro_batch
    args = replace(args, global_batch=global_batch)
    if global_batch > 0 and global_batch % step == 0:
        assert generate(args).iterations == args.epoch_num
        return
    with pytest.raises(ParameterError, match="nearest"):
        generate(args)
    forced = generate(args, break_rules=True)
    sends = Counter(item.additional for item in forced)
    if args.pipeline_model_parallel > 1:
        assert sends["send_next"] == args.epoch_num * max(0, global_batch // step)


def test_epochs_cut_at_the_right_rows() -> None:
    args = WorkloadArgs(world_size=4, num_attention_heads=16, global_batch=8, epoch_num=3)
    workload = generate(args)
    parts = [list(workload.epoch(number)) for number in range(4)]
    assert [item for part in parts for item in part] == list(workload)
    assert all(part[-1] == LogItem(CommType.epoch_end) for part in parts)
