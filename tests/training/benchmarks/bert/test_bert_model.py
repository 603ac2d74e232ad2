"""Our BERT against transformers': the same weights give the same losses and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.training.benchmarks.driver.training.tiny import benchmark_of, check_gradients, config_of
from training.benchmarks.bert.pytorch.config import Config
from training.benchmarks.bert.pytorch.model import Bert
from training.benchmarks.bert.pytorch.packed import packed
from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark


def _pair() -> tuple[Bert, torch.nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")  # takes a second to load
    config = config_of("bert")
    assert isinstance(config, Config)
    theirs = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.ffn_hidden_size,
            max_position_embeddings=config.max_position_embeddings,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # also biases, which are zero at the start
    state = BertBenchmark().weights_of(
        config, {"model": {f"bert_model_segment.{k}": v for k, v in theirs.state_dict().items()}}
    )
    ours = Bert(config)
    missing, _ = ours.load_state_dict(state, strict=False)
    assert missing == []
    batch = benchmark_of("bert").synthetic_data(config).train[[0, 1, 2, 3]]
    batch["input_mask"][1, 10:] = 0
    batch["masked_lm_ids"][2, 1:] = 0
    return ours.train(), theirs.train(), batch


def test_an_encoder_without_padding_has_the_same_loss_gradients_and_metrics() -> None:
    padded, _, batch = _pair()
    batch["masked_lm_positions"].clamp_(max=9)
    unpadded = Bert(padded.config.model_copy(update={"unpad": True})).train()
    unpadded.load_state_dict(padded.state_dict())
    losses = []
    for model in (padded, unpadded):
        loss = model(batch)["loss"]
        loss.backward()
        losses.append(float(loss.detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    for (name, mine), theirs in zip(unpadded.named_parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-4, msg=name)
    found = [model.eval()(batch) for model in (padded, unpadded)]
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, msg=key)


def test_the_layers_without_padding_see_the_real_tokens_alone() -> None:
    model, _, batch = _pair()
    seen = []
    model.config = model.config.model_copy(update={"unpad": True})
    model.blocks()[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    model(batch)
    assert seen == [(16 * 3 + 10, 32)], "one of four samples has ten tokens of sixteen"


def test_no_step_without_padding_waits_for_the_device() -> None:
    """Fake tensors have shapes and no values: whatever needs a value on the host, such as the number of tokens, fails.

    It is the loader that packs a batch, where its values are known.
    """
    config: Any = config_of("bert", unpad=True, hidden_dropout=0.1, attention_dropout=0.1)
    batch = benchmark_of("bert").synthetic_data(config).train[[0, 1, 2, 3]]
    batch = packed({name: batch[name] for name in batch if not name.startswith(("token_", "label"))} | _shorter(batch))
    raw = {name: tensor for name, tensor in batch.items() if not name.startswith(("token_", "label"))}
    with FakeTensorMode() as mode:
        model = Bert(config).train()
        on_device = [{name: mode.from_tensor(tensor) for name, tensor in each.items()} for each in (batch, raw)]
        model(on_device[0])["loss"].backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        with pytest.raises(DynamicOutputShapeException):
            model(on_device[1])


def _shorter(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    mask = batch["input_mask"].clone()
    mask[1, 10:] = 0
    return {"input_mask": mask}


def test_the_data_are_packed_where_the_encoder_leaves_padding_out() -> None:
    sets = {unpad: benchmark_of("bert").synthetic_data(config_of("bert", unpad=unpad)) for unpad in (False, True)}
    for name in ("train", "evaluation"):
        plain, packed_set = (getattr(sets[unpad], name) for unpad in (False, True))
        assert len(plain) == len(packed_set)
        assert (plain.epoch_order(7) == packed_set.epoch_order(7)).all()
        few, more = plain[[3, 1]], packed_set[[3, 1]]
        assert all(torch.equal(few[key], more[key]) for key in few)
        assert more["token_boundaries"].tolist() == [0, *few["input_mask"].sum(1).cumsum(0).tolist()]
        assert torch.equal(more["labels"], few["masked_lm_ids"][few["masked_lm_ids"] != 0])


@pytest.mark.parametrize("on_device", [False, True])
def test_work_is_counted_without_padding(monkeypatch: pytest.MonkeyPatch, on_device: bool) -> None:
    if on_device:  # the same with torch alone, as where the CPU does not hold the batches
        monkeypatch.setattr("training.benchmarks.bert.pytorch.packed._is_here", lambda tensors: False)
    config = config_of("bert")
    assert isinstance(config, Config)
    model = Bert(config).train()
    batch = benchmark_of("bert").synthetic_data(config).train[[0, 1, 2, 3]]
    found = BertBenchmark().work_of(config, [batch])
    assert [isinstance(each, Tensor) for each in found] == [False, on_device, on_device]
    samples, tokens, flops = (float(each) for each in found)
    assert (samples, tokens, flops) == (4, 4 * config.tokens_per_sample(), 4 * config.flops_per_sample()), (
        "nothing is padding"
    )
    batch["input_mask"][:, 10:] = 0
    batch["masked_lm_positions"].clamp_(max=9)
    batch["masked_lm_ids"][:, 2:] = 0
    short = config.model_copy(update={"max_seq_length": 10, "max_predictions_per_seq": 2})
    samples, tokens, flops = (float(each) for each in BertBenchmark().work_of(config, [batch]))
    assert (samples, tokens, flops) == (4, 40, 4 * short.flops_per_sample())
    rest = benchmark_of("bert").synthetic_data(config).train[[4, 5]]
    for both in ([batch, rest], [packed(batch), packed(rest)]):
        counted = [{name: each[name] for name in BertBenchmark.counted if name in each} for each in both]
        found_of_both = tuple(float(value) for value in BertBenchmark().work_of(config, counted))
        assert found_of_both == (6, 40 + 2 * config.tokens_per_sample(), flops + 2 * config.flops_per_sample())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        cut = {
            key: value[:, :10] if key in ("input_ids", "input_mask", "segment_ids") else value
            for key, value in batch.items()
        }
        cut |= {key: batch[key][:, :2] for key in ("masked_lm_positions", "masked_lm_ids")}
        model(cut)["loss"].backward()
    assert flops == pytest.approx(counter.get_total_flops(), rel=1e-3)


def test_loss_and_gradients_are_those_of_transformers() -> None:
    ours, theirs, batch = _pair()
    labels = torch.full_like(batch["input_ids"], -100)
    for row in range(4):
        for position, label in zip(batch["masked_lm_positions"][row], batch["masked_lm_ids"][row], strict=True):
            if label:
                labels[row, position] = label
    reference = theirs(
        input_ids=batch["input_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["segment_ids"],
        labels=labels,
        next_sentence_label=batch["next_sentence_labels"],
    ).loss
    loss = ours(batch)["loss"]
    check_gradients(ours, theirs, loss, reference, atol=1e-5, rtol=1e-4)


def test_accuracy_counts_the_labels_that_are_there() -> None:
    ours, _, batch = _pair()
    ours.eval()
    results = ours(batch)
    right, count = results["eval_mlm_accuracy"].tolist()
    assert count == int((batch["masked_lm_ids"] != 0).sum()) == 10
    hidden_right = 0
    for row in range(4):
        single = {key: value[row : row + 1] for key, value in batch.items()}
        hidden_right += ours(single)["eval_mlm_accuracy"][0].item()
    assert right == hidden_right
    without = {**batch, "masked_lm_ids": torch.zeros_like(batch["masked_lm_ids"])}
    assert torch.isfinite(ours(without)["loss"]), "a batch without any mask has the other loss"


def test_a_checkpoint_of_the_unpadded_vocabulary_is_filled_up() -> None:
    config = config_of("bert")
    with torch.device("meta"):
        names = {name: p.shape for name, p in Bert(config).named_parameters()}  # type: ignore[arg-type]
    state = {f"module.{name}": torch.ones(shape) for name, shape in names.items()}
    state["module.bert.embeddings.word_embeddings.weight"] = torch.ones(60, 32)
    state["module.cls.predictions.bias"] = torch.ones(60)
    weights = BertBenchmark().weights_of(config, state)  # type: ignore[arg-type]
    embeddings, bias = weights["bert.embeddings.word_embeddings.weight"], weights["cls.predictions.bias"]
    assert embeddings.shape == (64, 32) and bias.shape == (64,)
    assert embeddings[:60].eq(1).all() and embeddings[60:].eq(0).all() and bias[60:].eq(0).all()
