"""`run.py plan --settings` shows on which of Slurm's switches the hosts of a network case hang."""

from collections.abc import Callable
from pathlib import Path

import pytest

from run_benchmarks.commands.plan_view import masked
from run_benchmarks.commands.tiers_view import tier_rows
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import Load

Rows = Callable[[str, str], list[tuple[str, str, str]]]
CONF = """\
SwitchName=leaf1 Nodes=gpu[01-03]
SwitchName=leaf2 Nodes=gpu[04-06]
SwitchName=leaf3 Nodes=gpu[07-08]
SwitchName=pod1 Switches=leaf[1-2]
SwitchName=pod2 Switches=leaf3
SwitchName=core Switches=pod[1-2]
"""
TEST = (
    "VENDOR = 'cpu'\nRUNTIME = 'slurm'\nPYTHON = '/p'\nCASES = ['A']\nA = {'model': 'network', 'framework': 'pytorch',"
)
CASE = " 'config': 'config_CPUx1x2', 'nnodes': 6, 'nproc': 2, 'overrides': {'pattern': 'pairs', 'topology': '%s'}}\n"


@pytest.fixture
def rows(load: Load, tmp_path: Path) -> Rows:
    def made(text: str, hosts: str) -> list[tuple[str, str, str]]:
        file = tmp_path / "topology.conf"
        file.write_text(text)
        settings = load(TEST + CASE % file, f"LAUNCHER = 'slurm'\nHOSTS = {hosts}\n")
        return tier_rows(masked(prepare(settings, "run20261121191924").plan)["cases"][0])

    return made


def test_tiers_are_those_of_topology_conf(rows: Rows) -> None:
    assert rows(CONF, "'gpu[02-07]'") == [
        ("1", "switch leaf1", "gpu[02-03]"),
        ("1", "switch leaf2", "gpu[04-06]"),
        ("1", "switch leaf3", "gpu07"),
        ("2", "switch pod1", "gpu[02-06]"),
        ("2", "switch pod2", "gpu07"),
    ]


def test_what_is_not_known_here_is_said(rows: Rows) -> None:
    assert rows(CONF, "6") == [("?", "decided once Slurm gives the hosts", "")]
    ((_, lacking, _),) = rows(CONF, "'gpu[04-09]'")
    assert lacking.startswith("decided on the first host; here: topology") and "lacks gpu09" in lacking
    assert rows("SwitchName=one Nodes=gpu[01-08]\n", "'gpu[01-06]'") == [("1", "all hosts hang together", "gpu[01-06]")]
