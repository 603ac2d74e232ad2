"""What pages of the site take from the code: settings, commands, metrics. A page marks the place with a comment:

<!-- generated: settings -->
"""

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable
from unittest import mock

from common.command_line import Program
from protocol.case_config import load_case_config
from protocol.masking import mask_config
from protocol.outcome import Metric
from run_benchmarks.commands import cli as run_cli
from run_benchmarks.flagperf import keys
from run_benchmarks.settings import docs
from simulation import cli as simulation_cli
from tests.docs.pages import ROOT, markdown_table
from tests.performance.table import read_tables
from training.benchmarks import catalog
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from vendors.datasheets import datasheets as known_datasheets
from workloads import cli as workload_cli

MARK = re.compile(r"^<!-- generated: (?P<name>[\w-]+) -->$", re.MULTILINE)
WIDTH = 100  # columns of a --help
FIGURES = ("what", "measured", "baseline", "ratio", "goal", "met")


def settings() -> str:
    """The table of all settings of cluster_conf.py, test_conf.py and a case."""
    return docs.markdown_table(docs.COLUMNS, docs.table_rows())


def network_settings() -> str:
    """The table of what a case of the network benchmark may set."""
    model = catalog.benchmark("network", "pytorch").config_class
    rows = [(doc.key, doc.allowed, doc.default, doc.meaning) for doc in docs.documented(model)]
    return docs.markdown_table(docs.COLUMNS[1:], rows)


def training_settings() -> str:
    """The table of what a case of any training may set."""
    rows = [(doc.key, doc.allowed, doc.default, doc.meaning) for doc in docs.documented(TrainingConfig)]
    return docs.markdown_table(docs.COLUMNS[1:], rows)


def run_commands() -> str:
    """The --help of run.py and of each of its commands."""
    return _program(run_cli.PROGRAM)


def workload_commands() -> str:
    """The --help of `python -m workloads` and of each of its verbs."""
    return _program(workload_cli.PROGRAM)


def simulation_commands() -> str:
    """The --help of `python -m simulation` and of each of its verbs."""
    return _program(simulation_cli.PROGRAM)


def _program(program: Program) -> str:
    calls = [[], *(verb.split() for verb in program.verbs)]
    heading = program.module if program.is_script else f"python -m {program.module}"
    return "".join(_section(" ".join([heading, *words]), _help(program.main, words)) for words in calls)


def _help(main: Callable[[list[str]], int], words: list[str]) -> str:
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS=str(WIDTH)), contextlib.redirect_stdout(printed):
        try:
            code = main([*words, "--help"])
        except SystemExit as end:  # argparse's own --help
            code = end.code  # type: ignore[assignment]
    assert not code and printed.getvalue(), words
    return printed.getvalue()


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text.strip()}\n```\n\n"


def metrics() -> str:
    """A table for each benchmark: the metrics that its cases report, over all case configs that are shipped."""
    return "".join(
        f"## {model}:{framework}\n\n{_metrics_table(metrics_of(model, framework))}\n"
        for model, framework in catalog.available()
    )


def metrics_of(model: str, framework: str) -> list[Metric]:
    """What any of the shipped case configs of a benchmark reports, each metric once."""
    benchmark = catalog.benchmark(model, framework)
    found: dict[str, Metric] = {}
    for file in sorted((ROOT / "vendors").glob(f"*/{model}-{framework}/config/*.py")):
        config = load_case_config(benchmark.config_class, file, {})
        for metric in benchmark.outcome.metrics(mask_config(config.model_dump(mode="json"))):
            found.setdefault(metric.name, metric)
    return list(found.values())


def _metrics_table(found: Iterable[Metric]) -> str:
    rows = [
        f"| `{each.name}` | {each.unit} | {each.better} | {'yes' if each.is_reference else ''} | {each.meaning} |\n"
        for each in sorted(found, key=lambda each: not each.is_key)
    ]
    return "| metric | unit | better | in a baseline | meaning |\n| --- | --- | --- | --- | --- |\n" + "".join(rows)


def flagperf_keys() -> str:
    """The table of what `run.py import-flagperf` makes of each key."""
    return keys.markdown_table()


def datasheets() -> str:
    """The table of known devices: 1e12 operations/s by type, GB of memory and 1e9 bytes/s from it."""
    types = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    rows = [
        [
            sheet.name,
            *(f"{sheet.tflops[each]:g}" if each in sheet.tflops else "" for each in types),
            f"{sheet.memory_GiB:g}",
            f"{sheet.memory_GBps:g}",
        ]
        for sheet in known_datasheets()
    ]
    return markdown_table(["device", *types, "GB", "1e9 bytes/s"], rows)


def performance() -> str:
    """A table for each measurement of tests/performance, under its name, date and machine."""
    parts = []
    for name, table in read_tables(ROOT / "docs" / "data" / "performance.csv").items():
        rows = [[row[column] for column in FIGURES] for row in table]
        parts.append(f"## {name}\n\n{table[0]['date']}, {table[0]['machine']}\n\n{markdown_table(FIGURES, rows)}")
    return "\n".join(parts)


def fidelity() -> str:
    """What tests/workloads/fidelity.py found: a table of all jobs, then a section for each."""
    jobs = json.loads((ROOT / "docs" / "data" / "fidelity.json").read_text(encoding="utf-8"))
    columns = ("what", "trace", "framework", "aicb")
    rows = [[f"[{number}](#job-{number})", *(job[each] for each in columns)] for number, job in enumerate(jobs, 1)]
    parts = [markdown_table(["job", *columns], rows)]
    for number, job in enumerate(jobs, 1):
        totals = "\n".join(job.get("totals", ()))
        said = f"```text\n{totals}\n```" if totals else f"The dialect aicb refuses it: {job['refused']}"
        parts.append(f"## Job {number}\n\n{job['recorded']}\n\n{said}\n")
    return "\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "network-settings": network_settings,
    "training-settings": training_settings,
    "run-commands": run_commands,
    "workload-commands": workload_commands,
    "simulation-commands": simulation_commands,
    "metrics": metrics,
    "flagperf-keys": flagperf_keys,
    "datasheets": datasheets,
    "performance": performance,
    "fidelity": fidelity,
}


def completed(text: str) -> str:
    """A page with what the code says in the place of each mark.

    Raises:
        KeyError: a mark names no part.
    """
    return MARK.sub(lambda match: PARTS[match["name"]]().rstrip("\n"), text)
