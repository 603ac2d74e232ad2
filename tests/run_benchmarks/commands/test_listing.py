"""`run.py list` and the table of settings: both say what the types of the settings say."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import vendors
from run_benchmarks.commands import cli
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import ConfigError
from run_benchmarks.settings.docs import FILES, documented, markdown_table, table_rows
from training.benchmarks import catalog


def listed(*words: str) -> str:
    answer = CliRunner().invoke(cli.app, ["list", *words], terminal_width=200)
    assert answer.exit_code == 0, answer
    return answer.stdout


def test_the_documentation_has_the_settings_as_they_are() -> None:
    """`run.py list --markdown` prints what belongs there."""
    text = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")
    begin, end = "<!-- settings:begin -->\n", "<!-- settings:end -->"
    assert text[text.index(begin) + len(begin) : text.index(end)] == markdown_table()
    assert listed("--markdown") == markdown_table()


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


def test_what_is_neither_topic_nor_model_is_named() -> None:
    with pytest.raises(ConfigError, match=r"list 'vendor': expected a topic or a model; did you mean 'vendors'\?"):
        CliRunner().invoke(cli.app, ["list", "vendor"], catch_exceptions=False)
