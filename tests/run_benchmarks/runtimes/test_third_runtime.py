"""A third runtime is one file (null_runtime.py) and one entry: a run uses it end to end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import InputProblems
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.runtimes.registry import make_runtime
from run_benchmarks.settings.runtime_names import RUNTIMES
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load

NULL = "tests.run_benchmarks.runtimes.null_runtime"
ENTRY = f"""
from run_benchmarks.commands.cli import main
from run_benchmarks.settings.runtime_names import RUNTIMES, RuntimeEntry
RUNTIMES["null"] = RuntimeEntry(module={NULL!r}, in_containers=False)
main()
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options that name the files of a run with RUNTIME 'null'."""
    folders = {"FLAGPERF_PATH_HOST": str(tmp_path / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(tmp_path / "logs")}
    text = TEST.replace("process", "null") + "".join(f"{key} = {value!r}\n" for key, value in folders.items())
    (tmp_path / "cluster_conf.py").write_text(CLUSTER)
    (tmp_path / "test_conf.py").write_text(text)
    return ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]


def run_py(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", program, *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.nightly
def test_a_run_uses_it_from_the_check_to_the_cleaning(files: list[str], tmp_path: Path) -> None:
    ended = run_py(ENTRY, *files, "run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = (tmp_path / "logs").glob("run*")
    record = json.loads((folder / "run.json").read_text())
    assert (record["verdict"], record["runtime"]) == ("pass", "null")
    (round_,) = folder.glob("*/round1/round.json")
    node = json.loads(round_.read_text())["nodes"][0]
    assert node["exit_code"] == 0 and {"rank0.out.log", "rank1.out.log", "monitor.jsonl"} <= set(node["files"])
    assert (folder / "report.html").is_file()
    assert run_py(ENTRY, *files, "clean", folder.name).returncode == 0
    assert not list((tmp_path / "logs/.hosts").glob("*"))


def test_a_runtime_that_is_not_entered_is_refused(load: Load) -> None:
    with pytest.raises(InputProblems, match="RUNTIME = 'null': expected one of 'docker', 'process'"):
        load(TEST.replace("process", "null"))


def test_each_registered_name_makes_a_runtime_of_its_own_class() -> None:
    said: list[str] = []
    runtimes: list[Runtime] = [make_runtime(name, said.append) for name in RUNTIMES]
    assert len({type(runtime) for runtime in runtimes}) == len(RUNTIMES) and not said
