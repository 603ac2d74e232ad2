"""Custom models from the base classes, and what the dialect makes of unusual ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.workloads.aicb_dialect import generate, simai
from workloads.dialects.aicb.layers import MegatronColumnLinear, MegatronRowLinear, Run
from workloads.library import Block, CommType, LogItem, MockedModel, MockedParam, ParameterError, Stack, WorkloadArgs

ROOT = Path(__file__).parents[2]
ZERO = WorkloadArgs(
    frame="DeepSpeed",
    world_size=8,
    global_batch=16,
    num_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    ffn_hidden_size=176,
    vocab_size=1000,
    reduce_bucket_size=30_000,
    param_persistence_threshold=100,
)


def _documented_model() -> type[MockedModel]:
    """The example of docs/reference/aicb.md, run as it stands there."""
    text = (ROOT / "docs" / "reference" / "aicb.md").read_text()
    code = text.split("<!-- custom model -->")[1].split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    model = names["DeepspeedForCausalLM"]
    assert isinstance(model, type)
    assert issubclass(model, MockedModel)
    assert len([line for line in code.splitlines() if line.strip()]) <= 40
    return model


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_documented_custom_llama_is_the_built_in_one(stage: int) -> None:
    args = replace(ZERO, stage=stage)
    model = _documented_model()(layers=2, hidden=64, ffn=176, vocab=1000)  # type: ignore[call-arg]
    assert list(generate(args, model=model)) == list(generate(args))


def test_parameters_come_in_the_order_of_assignment() -> None:
    class Inner(MockedModel):
        def __init__(self) -> None:
            self.first = MockedParam((2, 3), name="a")
            self.rest = [MockedParam((4,), name="b"), MockedParam((5,), name="c")]

    class Outer(MockedModel):
        def __init__(self) -> None:
            self.blocks = Stack(Inner(), 2)
            self.last = MockedParam((7, 1), name="d")

    model = Outer()
    assert [parameter.name for parameter in model.parameters()] == ["a", "b", "c", "a", "b", "c", "d"]
    assert model.numel() == 2 * (6 + 4 + 5) + 7 == sum(parameter.numel() for parameter in model.parameters())
    assert model.parameters()[0].msg_size() == 12


def test_a_megatron_model_of_ones_own_runs_its_layers() -> None:
    args = WorkloadArgs(world_size=4, tensor_model_parallel_size=2, num_attention_heads=16, global_batch=2)
    run = Run.of(args)

    class OnlyMlp(MockedModel):
        def __init__(self) -> None:
            self.up = MegatronColumnLinear(run, 1024, 4096, name="mlp_column")
            self.down = MegatronRowLinear(run, 4096, 1024, name="mlp_row")

    workload = generate(args, model=OnlyMlp())
    stages = [item.stage for item in workload.epoch(1)]
    assert stages.count("forward.MegatronRowLinear") == stages.count("backward.MegatronColumnLinear") == 1
    assert "forward.MegatronEmbedding" not in stages
    gradients = next(item for item in workload if item.stage == "step.finish_grad_sync")
    assert gradients.msg_size == 4 * 2 * 1024 * 4096 // 2


def test_models_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="the model has no parameters"):
        generate(ZERO, model=MockedModel())
    with pytest.raises(ValueError, match="each dimension must be 0 or more"):
        MockedParam((3, -1), name="bad")
    with pytest.raises(ParameterError, match="collective_test has no model"):
        generate(replace(ZERO, frame="collective_test"), model=MockedModel())
    with pytest.raises(ParameterError, match="pp_stage 1 is none"):
        generate(ZERO, pp_stage=1)


def test_last_pipeline_stage_sets_up_the_shared_embedding() -> None:
    args = WorkloadArgs(
        world_size=4, tensor_model_parallel_size=2, pipeline_model_parallel=2, num_attention_heads=16, global_batch=1
    )
    plain = list(generate(args).epoch(0))
    last = list(generate(replace(args, pp_rank=1)).epoch(0))
    extra = [item for item in last if item not in plain]
    word_bytes = 2 * 4 * args.padded_vocab_size // 2 * args.hidden_size
    assert [item.msg_size for item in extra] == [word_bytes, 2 * args.seq_length * args.hidden_size]
    assert {item.comm_type for item in extra} == {CommType.all_reduce}
    assert list(generate(args, pp_stage=1).epoch(0)) == last


def test_recomputed_attention_doubles_where_aicb_doubles_it() -> None:
    """Bytes without AIOB times; with them the flash part, and with sequence parallelism the whole forward again."""
    example = str(ROOT / "tests" / "data" / "aicb" / "aiob_example.txt")
    args = WorkloadArgs(
        world_size=2, tensor_model_parallel_size=2, num_attention_heads=16, global_batch=1, recompute_activations=True
    )
    timed = replace(args, aiob_enable=True, comp_filepath=example)
    block = next(item for item in simai(timed) if item.name == "attention_layer")
    assert (block.forward.compute_ns, block.input_gradient.compute_ns) == (2_332_000, 2_332_000)
    split = replace(timed, enable_sequence_parallel=True)
    column = next(item for item in simai(split) if item.name == "attention_column")
    assert (column.forward.compute_ns, column.input_gradient.compute_ns) == (2_332_000, 1_166_000)
    head = next(item for item in simai(split) if item.name == "final_column")
    assert head.forward.compute_ns == 1_166_000
    plain = next(item for item in simai(args) if item.name == "attention_layer")
    assert plain.forward.size == 2 * plain.input_gradient.size


def test_zero_3_with_amp_skips_the_broadcast() -> None:
    counts = {amp: generate(replace(ZERO, amp_enabled=amp)).totals("comm_type") for amp in (False, True)}
    assert ("broadcast",) in counts[False]
    assert ("broadcast",) not in counts[True]


def test_simai_text_of_zero_takes_measured_times() -> None:
    example = str(ROOT / "tests" / "data" / "aicb" / "aiob_example.txt")
    text = simai(replace(ZERO, global_batch=8, aiob_enable=True, comp_filepath=example))
    forward = {item.name: item.forward.compute_ns for item in text if item.forward.compute_ns}
    attention = [forward[name] for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
    assert attention == [455_000] * 4
    mlp = sum(forward[name] for name in ("gate_proj", "down_proj", "up_proj"))
    assert abs(mlp - 2_478_000) <= 2
    assert (forward["embed_tokens"], forward["lm_head"]) == (799_000, 12_824_000)
    optimizer = [item for item in text if item.name == "optimizer"]
    assert [item.input_gradient.compute_ns for item in optimizer] == [34_021_000]


class TestBlock:
    def test_length_iteration_tally_and_bytes_agree(self) -> None:
        inner: Block[str] = Block(["a", "b"], 3)
        never: Block[str] = Block(["d"], 0)
        outer: Block[str] = Block([inner, "c", never], 2)
        rows = list(outer)
        assert rows == ["a", "b", "a", "b", "a", "b", "c"] * 2
        assert len(outer) == len(rows)
        assert outer.tally() == {"a": 6, "b": 6, "c": 2}
        for limit in (1, 3, 7, 1 << 20):
            assert b"".join(outer.chunks(str.encode, limit)) == "".join(rows).encode()
        assert outer.encoded_size(str.encode) == len("".join(rows))
        assert list(outer.map(lambda row: None if row == "b" else row.upper())) == ["A", "A", "A", "C"] * 2

    def test_pieces_stay_within_the_limit(self) -> None:
        rows: Block[str] = Block([Block(["xy"], 1000), Block(["z"], 3)], 50)
        assert max(map(len, rows.chunks(str.encode, 100))) <= 100

    def test_negative_repetition_is_refused(self) -> None:
        with pytest.raises(ValueError, match="-1 times"):
            Block([LogItem(CommType.barrier)], -1)
