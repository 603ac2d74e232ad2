"""`run.py list` and the table of settings: both say what the types of the settings say."""

import vendors
from run_benchmarks.settings.docs import COLUMNS, FILES, documented, markdown_table, table_rows
from tests.run_benchmarks.calling import call
from training.benchmarks import catalog


def listed(*words: str) -> str:
    answer = call("list", *words)
    assert answer.exit_code == 0, answer
    return answer.stdout


def test_markdown_of_the_settings_is_the_same_with_and_without_their_name() -> None:
    assert listed("--markdown") == listed("settings", "--markdown") == markdown_table(COLUMNS, table_rows())


def test_every_setting_says_what_it_is() -> None:
    models = [model for _, model in FILES]
    for model in [*models, *(catalog.benchmark(*each).config_class for each in catalog.available())]:
        for doc in documented(model):
            assert doc.meaning and doc.allowed and doc.default, (model, doc)
            assert "^" not in doc.allowed and "a value" not in doc.allowed, (model, doc)


def test_vendors_models_and_configs_are_those_that_are_there() -> None:
    text = listed()
    for name in (*vendors.available(), *(model for model, _ in catalog.available()), "config_H100x2x8"):
        assert name in text
    assert "--cap-add IPC_LOCK" in text.replace("\n", "") and "LINK_LIMIT" in text
    assert len(table_rows()) == sum(len(model.model_fields) for _, model in FILES)


def test_one_topic_and_one_model_alone() -> None:
    assert "target_embedding_average" in listed("cpm") and "VENDOR" not in listed("cpm")
    assert "begin with training/benchmarks/cpm/pytorch/base.py" in listed("cpm").replace("\n", " ")
    assert "gloo" in listed("vendors") and "LINK_LIMIT" not in listed("vendors")


def test_a_model_in_markdown_is_that_model_in_each_framework() -> None:
    lines = listed("bert", "--markdown").splitlines()
    assert [line for line in lines if line.startswith("settings of")] == [
        f"settings of bert:{framework}, in case configs and in `overrides`;"
        f" case configs begin with training/benchmarks/bert/{framework}/base.py"
        for framework in ("paddle", "pytorch")
    ]
    rows = [line for line in lines if line.startswith("| `target_mlm_accuracy` | ")]
    assert len(rows) == 2 and not any("LINK_LIMIT" in line for line in lines)
    refused = call("list", "vendors", "--markdown")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: list: --markdown = 'vendors': for settings or a model: aicb, base, bert")


def test_a_model_is_described_and_not_referred_to() -> None:
    for name in catalog.available():
        said = catalog.benchmark(*name).config_class.__doc__ or ""
        assert said and not said.startswith("See "), name


def test_what_is_neither_topic_nor_model_is_named() -> None:
    refused = call("list", "vendor")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(
        "error: list 'vendor': expected a topic or a model; did you mean 'vendors'? known: "
    )
