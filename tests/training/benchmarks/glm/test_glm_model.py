"""GLM by its properties: who sees whom, what a score is, and what padding changes (nothing)."""

import pytest
import torch
from torch import Tensor

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.glm.pytorch.config import Config
from training.benchmarks.glm.pytorch.model import Glm


@pytest.fixture
def model() -> Glm:
    config = config_of("glm")
    assert isinstance(config, Config)
    torch.manual_seed(0)
    model = Glm(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture
def batch() -> dict[str, Tensor]:
    return benchmark_of("glm").synthetic_data(config_of("glm")).evaluation[[0, 1, 2, 3]]


def _scores(model: Glm, batch: dict[str, Tensor]) -> Tensor:
    """Log-probability of each choice, from the whole vocabulary's logits at every position: (b, c)."""
    result = torch.zeros(batch["text"].shape[:2])
    for sample, choice in torch.cartesian_prod(torch.arange(result.shape[0]), torch.arange(result.shape[1])).tolist():
        text, position = batch["text"][sample, choice], batch["position"][sample, choice]
        length = int(batch["context_length"][sample, choice])
        hidden = model.word_embeddings(text)
        hidden = hidden + model.transformer.position_embeddings(position[0])
        hidden = (hidden + model.transformer.block_position_embeddings(position[1]))[None]
        mask = torch.ones(len(text), len(text), dtype=torch.bool).tril()
        mask[:, :length] = True
        for block in model.blocks():
            hidden = block(hidden, mask[None, None])
        logits = model.transformer.final_layernorm(hidden[0]) @ model.word_embeddings.weight.T
        log_probabilities = logits.log_softmax(-1)
        for place, token, counts in zip(
            batch["answer_positions"][sample, choice],
            batch["answer_tokens"][sample, choice],
            batch["answer_mask"][sample, choice],
            strict=True,
        ):
            result[sample, choice] += log_probabilities[place, token] * counts
    return result


def test_loss_and_accuracy_follow_from_the_scores(model: Glm, batch: dict[str, Tensor]) -> None:
    batch["answer_mask"][0, 1, 1] = False
    batch["choice_mask"][1, 2] = False
    batch["is_right"][1] = torch.tensor([False, True, False])
    with torch.no_grad():
        scores = _scores(model, batch).masked_fill(~batch["choice_mask"], -torch.inf)
        results = model(batch)
    labels = batch["is_right"].int().argmax(1)
    expected = torch.nn.functional.cross_entropy(scores, labels)
    assert float(results["loss"]) == pytest.approx(float(expected), abs=1e-4)
    right, count = results["eval_accuracy"].tolist()
    assert count == 4
    assert right == int((scores.argmax(1) == labels).sum())


def test_any_of_several_right_choices_counts(model: Glm, batch: dict[str, Tensor]) -> None:
    with torch.no_grad():
        best = _scores(model, batch).argmax(1)
        batch["is_right"] = torch.ones_like(batch["is_right"])
        assert model(batch)["eval_accuracy"].tolist() == [4.0, 4.0]
        batch["is_right"] = torch.arange(3)[None, :] != best[:, None]
        assert model(batch)["eval_accuracy"].tolist() == [0.0, 4.0]


def test_padding_changes_nothing(model: Glm, batch: dict[str, Tensor]) -> None:
    padded = {key: torch.cat([value, value[:, :1]], dim=1) for key, value in batch.items()}
    padded["choice_mask"][:, -1] = False
    padded["is_right"][:, -1] = False
    with torch.no_grad():
        assert float(model(padded)["loss"]) == pytest.approx(float(model(batch)["loss"]), abs=1e-5)


def test_an_answer_sees_the_question_and_itself_backwards_only(model: Glm, batch: dict[str, Tensor]) -> None:
    config = config_of("glm")
    names = ("text", "position", "context_length", "answer_positions", "answer_tokens")

    def first_token(text: Tensor) -> Tensor:
        rows = {**batch, "text": text}
        return model._log_probabilities(*(rows[name].flatten(0, 1) for name in names))[:, 0]

    assert isinstance(config, Config)
    with torch.no_grad():
        before = first_token(batch["text"])
        later = batch["text"].clone()
        later[:, :, -1] = 5  # the last token of the answer's input comes after the first prediction
        assert torch.allclose(first_token(later), before, atol=1e-6)
        question = batch["text"].clone()
        question[:, :, 3] = 5
        assert not torch.allclose(first_token(question), before, atol=1e-4)
