"""Runs `run.py list`: lists vendors, models, case configs and settings from their definitions; no host is used."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import vendors
from common.errors import Problem
from common.summary import Answer
from protocol.config_file import common_folder, config_files
from protocol.config_layers import base_file
from run_benchmarks.commands.reading_options import TOPICS
from run_benchmarks.console.console import say
from run_benchmarks.console.terminal import print_table
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.origins import repository_path
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.docs import COLUMNS, documented, markdown_table, table_rows
from training.benchmarks import catalog


def run(arguments: argparse.Namespace) -> Answer:
    """List the topics that are asked for, or the settings of a model in each framework.

    Raises:
        InputProblems: there is no such topic or model, or it has no table of settings.
    """
    what, markdown = arguments.what, arguments.markdown
    models = sorted({model for model, _ in catalog.available()})
    if what is not None and what not in (*TOPICS, *models):
        raise InputProblems(
            [Problem("list", "", what, f"expected a topic or a model; {nearest(what, [*TOPICS, *models])}")]
        )
    if markdown and what not in (None, "settings", *models):
        raise InputProblems([Problem("list", "--markdown", what, f"for settings or a model: {', '.join(models)}")])
    if what in models:
        tables = list(_model(what))
    elif markdown:
        tables = [_settings()]
    else:
        tables = [_TABLES[topic]() for topic in ((what,) if what is not None else TOPICS)]
    return Answer(lambda: {each.topic: each.objects() for each in tables}, lambda: _show(tables, markdown=markdown))


class _Listed(NamedTuple):
    """A table: what it is of, its title, its headings by the names that its columns have in JSON, and its rows."""

    topic: str
    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[str]]

    def objects(self) -> list[dict[str, str]]:
        """An object for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def _show(tables: Sequence[_Listed], *, markdown: bool) -> None:
    for each in tables:
        columns = tuple(each.columns.values())
        if not markdown:
            print_table(each.title, columns, each.rows)
        elif each.topic == "settings":
            say(markdown_table(columns, each.rows).rstrip())
        else:
            say(f"{each.title}\n\n{markdown_table(columns, each.rows)}")


def _vendors() -> _Listed:
    rows = []
    for name in vendors.available():
        vendor = vendors.load(name)
        images = ", ".join(f"{framework}: {image.base_image}" for framework, image in vendor.images.items())
        has_devices = bool(vendor.monitor_name)
        never = f"never; this tells: python -m monitors --vendor {name} --log_dir DIR --max_seconds 5"
        seen = (vendor.seen or never) if has_devices else "needs none"
        rows.append((name, vendor.backend, vendor.container_options or "none", images, seen))
    columns = {
        "vendor": "VENDOR",
        "backend": "backend",
        "container_options": "container options",
        "images": "images are built on",
        "seen": "run on a device",
    }
    return _Listed("vendors", "vendors", columns, rows)


def _models() -> _Listed:
    rows = []
    for model, framework in catalog.available():
        config = catalog.benchmark(model, framework).config_class
        rows.append((model, framework, (config.__doc__ or "").partition("\n")[0], str(len(config.model_fields))))
    columns = {"model": "model", "framework": "framework", "meaning": "what", "settings": "settings (`list MODEL`)"}
    return _Listed("models", "models", columns, rows)


def _configs() -> _Listed:
    rows = []
    benchmarks = catalog.available()
    folders = {
        (vendor, *each): vendors.case_dir(vendor, *each) for vendor in vendors.available() for each in benchmarks
    }
    common = {("all", *each): common_folder(folder / "config").parent for (_, *each), folder in folders.items()}
    for (vendor, model, framework), folder in (common | folders).items():
        files = config_files(folder / "config")
        rows += [(vendor, model, framework, name, _first_comment(path)) for name, path in files.items()]
    columns = {"vendor": "vendor", "model": "model", "framework": "framework", "config": "config", "meaning": "what"}
    return _Listed("configs", "case configs", columns, rows)


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def _settings() -> _Listed:
    return _Listed("settings", "settings", dict(zip(COLUMNS, COLUMNS, strict=True)), table_rows())


def _model(model: str) -> Iterator[_Listed]:
    """The settings of each framework of a model."""
    for framework in (framework for name, framework in catalog.available() if name == model):
        config_class = catalog.benchmark(model, framework).config_class
        rows = [(doc.key, doc.allowed, doc.default, doc.meaning) for doc in documented(config_class)]
        base = base_file(config_class)
        below = f"; case configs begin with {repository_path(base)}" if base is not None else ""
        title = f"settings of {model}:{framework}, in case configs and in `overrides`{below}"
        yield _Listed(f"{model}:{framework}", title, dict(zip(COLUMNS[1:], COLUMNS[1:], strict=True)), rows)


_TABLES = {"vendors": _vendors, "models": _models, "configs": _configs, "settings": _settings}
