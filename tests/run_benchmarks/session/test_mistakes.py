"""One pass tells all mistakes: those of both files, of the command line, and of what they name."""

import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT, RUN_PY
from run_benchmarks.errors import InputProblems
from run_benchmarks.session.preparation import checked_settings, prepare
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.host_selection import HostSelection
from tests.run_benchmarks.conftest import CLUSTER, TEST

TYPO = "ONE['overrides'] = {'iteratons': 5, 'warmup_iterations': -1}\n"
UNDEFINED = "CASES = ['ONE', 'TOW']\n"


def said(
    folder: Path,
    test: str,
    cluster: str = CLUSTER,
    changes: Changes | None = None,
    selection: HostSelection | None = None,
) -> list[str]:
    """The keys of the mistakes, in their order, with their files."""
    (folder / "cluster_conf.py").write_text(cluster)
    (folder / "test_conf.py").write_text(test)
    with pytest.raises(InputProblems) as caught:
        files = folder / "cluster_conf.py", folder / "test_conf.py"
        prepare(checked_settings(*files, changes, selection), "run20261121191924")
    assert len(set(map(str, caught.value.problems))) == len(caught.value.problems)
    return [f"{Path(problem.file).name}: {problem.key}" for problem in caught.value.problems]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_wrong_vendor_an_undefined_case_and_a_typo_appear_together(command: str, tmp_path: Path) -> None:
    (tmp_path / "cluster_conf.py").write_text("HOSTS = ['localhost']\nSSH_PROT = 22\n")
    (tmp_path / "test_conf.py").write_text(f"{TEST}{UNDEFINED}{TYPO}VENDOR = 'nvidai'\nSHM_SIZE = 'lots'\n")
    files = ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]
    argv = [sys.executable, str(RUN_PY), command, *files]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert answer.returncode == 2 and "Traceback" not in answer.stderr
    text = answer.stderr.replace(f"{tmp_path}/", "")
    assert text.startswith("error: ") and text.count("error: ") == 6
    for line in (
        "cluster_conf.py: SSH_PROT = 22: unknown key (a name of your own begins with an underscore: _SSH_PROT); "
        "did you mean 'SSH_PORT'?",
        "test_conf.py: SHM_SIZE = 'lots': a size such as 4096, 512K, 16M or 1.5G, in bytes; K, M, G and T are powers "
        "of 1024",
        "test_conf.py: VENDOR = 'nvidai': unknown vendor 'nvidai': vendors/ has amd, ascend, cambricon, cpu,"
        " dcu, gaudi, iluvatar, kunlunxin, metax, mthreads, nvidia, tsingmicro;"
        " did you mean 'nvidia'?",
        "test_conf.py: CASES = 'TOW': no definition in this file; known: ONE",
        "test_conf.py: ONE.overrides.iteratons = 5: unknown setting; did you mean 'iterations'?",
        "test_conf.py: ONE.overrides.warmup_iterations = -1: expected a whole number of at least 0",
    ):
        assert f"error: {line}" in text


@pytest.mark.parametrize(
    ("test", "cluster", "expected"),
    [
        (
            f"{TEST}{TYPO}VENDOR = 5\n",
            CLUSTER,
            ["test: VENDOR", "test: ONE.overrides.iteratons", "test: ONE.overrides.warmup_iterations"],
        ),
        (
            f"{TEST}{UNDEFINED}ONE['nnodes'] = 4\nHOSTS = []\n",
            CLUSTER,
            ["test: HOSTS", "test: CASES", "test: ONE.nnodes"],
        ),
        # Of hosts that are not known nothing is said.
        (f"{TEST}ONE['nnodes'] = 4\nVENDOR = 'x'\n", "HOSTS = 'a'\n", ["cluster: HOSTS", "test: VENDOR"]),
        (f"{TEST}VENDOR = 'x'\n", "HOSTS = [\n", ["cluster: ", "test: VENDOR"]),
        ("VENDOR = \n", "HOSTS = ['a']\nSSH_PORT = 0\n", ["test: ", "cluster: SSH_PORT"]),
        # A case with mistakes of its own.
        (
            f"{TEST}{TYPO}ONE['nproc'] = 0\n",
            CLUSTER,
            ["test: ONE.nproc", "test: ONE.overrides.iteratons", "test: ONE.overrides.warmup_iterations"],
        ),
        (f"{TEST}ONE['nproc'] = 0\nONE['model'] = 'brt'\n", CLUSTER, ["test: ONE.nproc", "test: ONE.model:framework"]),
        (
            f"{TEST}{TYPO}ONE['config'] = 'config_x'\n",
            CLUSTER,
            ["test: ONE.config", "test: ONE.overrides.iteratons", "test: ONE.overrides.warmup_iterations"],
        ),
        (
            f"{TEST}{TYPO}ONE['hosts'] = ['b']\n",
            CLUSTER,
            ["test: ONE.hosts", "test: ONE.overrides.iteratons", "test: ONE.overrides.warmup_iterations"],
        ),
        # What cannot be a case's name is one mistake, not an undefined case as well.
        (f"{TEST}CASES = ['ONE', 'ONE MORE']\n", CLUSTER, ["test: CASES[1]"]),
        (f"{TEST}CASES = {{'network:pytorch:CPU:1:2': ''}}\n", CLUSTER, ["test: CASES"]),
        # A rule over several keys of the file, and one of them.
        (f"{TEST}VENDOR = 'x'\nFLAGPERF_LOG_PATH_CONTAINER = '/workspace'\n", CLUSTER, ["test: ", "test: VENDOR"]),
    ],
)
def test_no_mistake_hides_another(test: str, cluster: str, expected: list[str], tmp_path: Path) -> None:
    found = said(tmp_path, test, cluster)
    assert sorted(found) == sorted(
        each.replace("test:", "test_conf.py:").replace("cluster:", "cluster_conf.py:") for each in expected
    )


def test_the_command_line_s_mistakes_are_among_them(tmp_path: Path) -> None:
    changes, selection = Changes(sets=("STALL_LIMIT=soon",)), HostSelection(hosts="node9")
    found = said(tmp_path, f"{TEST}{UNDEFINED}", changes=changes, selection=selection)
    assert found == ["--set: STALL_LIMIT", "command line: --hosts", "test_conf.py: CASES"]


def test_sound_files_are_settings(tmp_path: Path) -> None:
    (tmp_path / "cluster_conf.py").write_text(CLUSTER)
    (tmp_path / "test_conf.py").write_text(TEST)
    settings = checked_settings(tmp_path / "cluster_conf.py", tmp_path / "test_conf.py")
    assert settings.unknown == frozenset() and settings.broken_cases == {} and list(settings.cases) == ["ONE"]
