"""What tells one runtime or one way to a host from another stands in the rooms that own the difference."""

import ast
from collections.abc import Iterator

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.hosts.endpoint import LOCAL_NAMES
from run_benchmarks.settings.runtime_names import RUNTIMES

PACKAGE = ROOT / "run_benchmarks"
# The settings say which names HOSTS may mix; who reaches a host asks the Host or hosts/factory.py.
MAY_TELL_HOSTS = ("hosts/", "settings/cluster.py")
MAY_TELL_RUNTIMES = ("runtimes/", "settings/")


def sources(*rooms: str) -> Iterator[tuple[str, str]]:
    """Path below run_benchmarks/ and text of the modules outside `rooms`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(rooms):
            yield name, path.read_text(encoding="utf-8")


def constants_compared(text: str) -> Iterator[tuple[int, str]]:
    """Line and value of every string that is compared, looked for in a collection or matched."""
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        for part in parts:
            items = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            for item in items:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.lineno, item.value


def told_apart(text: str, values: frozenset[str], names: frozenset[str]) -> list[int]:
    """The lines that compare with one of `values`, or use one of `names`."""
    used = [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in names]
    return sorted([line for line, value in constants_compared(text) if value in values] + used)


@pytest.mark.parametrize(
    "text",
    ['if host.name == "localhost": ...', 'if name in ("x", "127.0.0.1"): ...', "if is_local(name): ..."],
)
def test_a_comparison_is_found(text: str) -> None:
    assert told_apart(text, LOCAL_NAMES, frozenset({"is_local", "LOCAL_NAMES"})) == [1]


def test_only_the_hosts_tell_the_head_node_from_a_host_behind_ssh() -> None:
    names = frozenset({"is_local", "LOCAL_NAMES", "LocalHost", "SshHost"})
    found = {name: lines for name, text in sources(*MAY_TELL_HOSTS) if (lines := told_apart(text, LOCAL_NAMES, names))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        'if plan.runtime == "docker": ...',
        'if "process" != plan.runtime: ...',
        'if runtime in {"docker", "null"}: ...',
        'match runtime:\n    case "docker": ...',
    ],
)
def test_a_runtime_told_by_its_name_is_found(text: str) -> None:
    assert told_apart(text, frozenset(RUNTIMES), frozenset())


def test_only_the_runtimes_and_the_settings_tell_one_runtime_from_another() -> None:
    values, names = frozenset(RUNTIMES), frozenset({"DockerRuntime", "ProcessRuntime", "RUNTIMES"})
    found = {name: lines for name, text in sources(*MAY_TELL_RUNTIMES) if (lines := told_apart(text, values, names))}
    assert found == {}
