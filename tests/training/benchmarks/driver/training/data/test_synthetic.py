"""Synthetic data can be learned, is the same for the same seed, and its evaluation is not its training."""

import numpy as np
import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.driver.training.data.synthetic import Chain


def test_the_chain_is_one_cycle_through_all_tokens() -> None:
    chain = Chain(3, first=10, count=25)
    tokens = chain.sequences(np.random.default_rng(0), np.array([10]), 26)[0]
    assert sorted(tokens[:-1]) == list(range(10, 35))
    assert tokens[-1] == tokens[0]
    several = chain.sequences(np.random.default_rng(0), np.array([34, 10, 21]), 60)
    assert (chain.successor(several[:, :-1]) == several[:, 1:]).all() and several[:, 0].tolist() == [34, 10, 21]


def test_noise_replaces_about_its_part() -> None:
    chain = Chain(3, first=0, count=1000)
    tokens = chain.sequences(np.random.default_rng(0), np.zeros(200, dtype=np.int64), 50, noise=0.2)
    followed = (chain.successor(tokens[:, :-1]) == tokens[:, 1:]).mean()
    assert 0.77 < followed < 0.83


@pytest.mark.parametrize("model", MODELS)
def test_the_seed_decides_and_the_sets_differ(model: str) -> None:
    def batch(seed: int, part: str) -> dict[str, torch.Tensor]:
        sets = benchmark_of(model).synthetic_data(config_of(model, seed=seed))
        return getattr(sets, part)[list(range(8))]  # type: ignore[no-any-return]

    key = {"llama": "tokens", "cpm": "tokens", "bert": "input_ids", "glm": "text"}[model]
    train = batch(1, "train")
    assert torch.equal(train[key], batch(1, "train")[key])
    assert not torch.equal(train[key], batch(2, "train")[key])
    assert not torch.equal(train[key], batch(1, "evaluation")[key])
    sets = benchmark_of(model).synthetic_data(config_of(model))
    assert (len(sets.train), len(sets.evaluation)) == (128, 24)


def test_bert_pairs_are_labelled_rightly() -> None:
    config = config_of("bert", max_seq_length=16, train_samples=200)
    batch = benchmark_of("bert").synthetic_data(config).train[list(range(200))]
    tokens = batch["input_ids"].scatter(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
    chain = Chain(config.seed, first=4, count=40)
    first_length = (16 - 3) // 2
    last, after = tokens[:, first_length].numpy(), tokens[:, first_length + 2].numpy()
    continues = chain.successor(last) == after
    assert (continues | (batch["next_sentence_labels"].numpy() == 1)).all()
    assert 60 < int(batch["next_sentence_labels"].sum()) < 140
    assert (batch["input_ids"].gather(1, batch["masked_lm_positions"]) == 3).all(), "masked tokens are hidden"
    assert (tokens[:, 0] == 1).all() and (tokens[:, first_length + 1] == 2).all() and (tokens[:, -1] == 2).all()
    assert (batch["segment_ids"].sum(1) == 16 - 2 - first_length).all()


def test_glm_has_one_right_choice_and_training_has_it_first() -> None:
    config = config_of("glm", train_samples=100, eval_samples=100)
    sets = benchmark_of("glm").synthetic_data(config)
    chain = Chain(config.seed, first=3, count=40)
    for part, batch in {"train": sets.train[list(range(100))], "eval": sets.evaluation[list(range(100))]}.items():
        question = batch["text"][:, 0, 12].numpy()  # 16 tokens: 13 of the chain, the mask, 2 of the answer
        first = batch["answer_tokens"][:, :, 0].numpy()
        is_right = first == chain.successor(question)[:, None]
        assert (is_right == batch["is_right"].numpy()).all()
        assert (is_right.sum(1) == 1).all()
        places = {int(place) for place in is_right.argmax(1)}
        assert places == ({0} if part == "train" else {0, 1, 2})
        assert (batch["answer_positions"] == torch.tensor([14, 15])).all()
