"""Runs `run.py list`: lists vendors, models, case configs and settings from their definitions; no host is used."""

from __future__ import annotations

import argparse
from pathlib import Path

import vendors
from common.command_line import VerbParser
from common.errors import Problem
from protocol.config_file import common_folder, config_files
from protocol.config_layers import base_file
from run_benchmarks.console.console import print_table, say
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.origins import repository_path
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.docs import COLUMNS, documented, markdown_table, table_rows
from run_benchmarks.state.exit_codes import EXIT_PASS
from training.benchmarks import catalog

TOPICS = ("vendors", "models", "configs", "settings")


def add_arguments(parser: VerbParser) -> None:
    """See Verb."""
    meaning = f"{', '.join(TOPICS)}, or a model: the settings of its case configs; without it, all four"
    parser.add_argument("what", metavar="WHAT", nargs="?", help=meaning)
    parser.add_argument(
        "--markdown", action="store_true", help="settings as a table in Markdown, or a model's in its form"
    )


def run(arguments: argparse.Namespace) -> int:
    """See Verb.

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
        _model(what, markdown=markdown)
    elif markdown:
        say(markdown_table(COLUMNS, table_rows()).rstrip())
    else:
        for topic in TOPICS if what is None else (what,):
            _TABLES[topic]()
    return EXIT_PASS


def _vendors() -> None:
    rows = []
    for name in vendors.available():
        vendor = vendors.load(name)
        images = ", ".join(f"{framework}: {image.base_image}" for framework, image in vendor.images.items())
        has_devices = bool(vendor.monitor_name)
        never = f"never; this tells: python -m monitors --vendor {name} --log_dir DIR --max_seconds 5"
        seen = (vendor.seen or never) if has_devices else "needs none"
        rows.append((name, vendor.backend, vendor.container_options or "none", images, seen))
    columns = ("VENDOR", "backend", "container options", "images are built on", "run on a device")
    print_table("vendors", columns, rows)


def _models() -> None:
    rows = []
    for model, framework in catalog.available():
        config = catalog.benchmark(model, framework).config_class
        rows.append((model, framework, (config.__doc__ or "").partition("\n")[0], str(len(config.model_fields))))
    print_table("models", ("model", "framework", "what", "settings (`list MODEL`)"), rows)


def _configs() -> None:
    rows = []
    benchmarks = catalog.available()
    folders = {
        (vendor, *each): vendors.case_dir(vendor, *each) for vendor in vendors.available() for each in benchmarks
    }
    common = {("all", *each): common_folder(folder / "config").parent for (_, *each), folder in folders.items()}
    for (vendor, model, framework), folder in (common | folders).items():
        files = config_files(folder / "config")
        rows += [(vendor, model, framework, name, _first_comment(path)) for name, path in files.items()]
    print_table("case configs", ("vendor", "model", "framework", "config", "what"), rows)


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def _settings() -> None:
    print_table("settings", COLUMNS, table_rows())


def _model(model: str, *, markdown: bool) -> None:
    """The settings of each framework of a model."""
    for framework in (framework for name, framework in catalog.available() if name == model):
        config_class = catalog.benchmark(model, framework).config_class
        rows = [(doc.key, doc.allowed, doc.default, doc.meaning) for doc in documented(config_class)]
        base = base_file(config_class)
        below = f"; case configs begin with {repository_path(base)}" if base is not None else ""
        title = f"settings of {model}:{framework}, in case configs and in `overrides`{below}"
        if markdown:
            say(f"{title}\n\n{markdown_table(COLUMNS[1:], rows)}")
        else:
            print_table(title, COLUMNS[1:], rows)


_TABLES = {"vendors": _vendors, "models": _models, "configs": _configs, "settings": _settings}
