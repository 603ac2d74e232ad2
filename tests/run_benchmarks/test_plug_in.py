"""A benchmark is added as one folder with both halves, and is found in verdict, console, report and baseline."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import product

CASES = {
    "GAUGE": {"model": "gauge", "framework": "plain", "config": "config_CPUx1x1", "nproc": 1},
    "BARE": {"model": "gauge", "framework": "bare", "config": "config_CPUx1x1", "nproc": 1},
}


class Project:
    """A copy of the repository with one benchmark more, and run.py in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = product.copy(folder)
        product.copy_folder(Path(__file__).parent / "gauge", folder / "training/benchmarks/gauge")
        for framework in ("plain", "bare"):
            config = folder / f"vendors/cpu/gauge-{framework}/config/config_CPUx1x1.py"
            config.parent.mkdir(parents=True)
            config.write_text("turns_per_second = 100.0\n")

    def run(self, *words: str, case: dict[str, Any] | None = None, **settings: object) -> tuple[int, str]:
        """Exit code and output of run.py on this machine; `case` is added to both cases."""
        conf = {
            "VENDOR": "cpu",
            "RUNTIME": "process",
            "CASES": list(CASES),
            "FLAGPERF_PATH_HOST": str(self.folder / "deploy"),
            "FLAGPERF_LOG_PATH_HOST": str(self.folder / "logs"),
            "MONITOR_INTERVAL": 0.2,
            **{name: fields | (case or {}) for name, fields in CASES.items()},
            **settings,
        }
        (self.folder / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in conf.items()))
        (self.folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
        files = ["--cluster-conf", "cluster_conf.py", "--test-conf", "test_conf.py"]
        argv = [sys.executable, "run_benchmarks/run.py", *files, *words]
        wide = {**os.environ, "COLUMNS": "400"}  # no cell of a table is wrapped, whatever else stands in it
        done = subprocess.run(argv, cwd=self.folder, env=wide, capture_output=True, text=True, timeout=200)
        return done.returncode, " ".join((done.stdout + done.stderr).replace("│", " ").split())

    def result(self, name: str) -> str:
        """A file of the newest run."""
        return (max((self.folder / "logs").glob("run*")) / name).read_text()

    def cases(self) -> dict[str, dict[str, Any]]:
        """The cases of the newest run, by name."""
        return {case["name"]: case for case in json.loads(self.result("run.json"))["cases"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("plug-in"))


@pytest.fixture(scope="module")
def baseline(project: Project) -> Path:
    """What a run that passed has left, with its baseline."""
    file = project.folder / "good.json"
    code, output = project.run("run", "--save-baseline", str(file), case={"expect": {"turns_tps": ">= 50 turns/s"}})
    assert code == 0, output
    assert "gauge of GAUGE, round 1: 2 steps" in output
    assert "finding the gauge turned at [100.0] tps" in output
    assert "expect turns(tps) is 100 turns/s, expected >= 50 turns/s" in output
    assert "Testcase GAUGE: the gauge is made up" in output
    return file


@pytest.mark.nightly
def test_a_run_that_passed_says_what_the_outcome_says(project: Project, baseline: Path) -> None:
    cases = project.cases()
    assert cases["GAUGE"]["sentences"] == ["the gauge turned at [100.0] tps"]
    assert cases["GAUGE"]["warnings"] == ["the gauge is made up"]
    for name in CASES:
        (expected,) = cases[name]["expectations"]
        assert expected == {
            "metric": "turns(tps)",
            "unit": "turns/s",
            "limit": ">= 50 turns/s",
            "measured": 100.0,
            "met": True,
            "missing_rounds": [],
        }
    page = project.result("report.html")
    assert "turned on &lt;localhost&gt;" in page and "turns of each step" in page
    assert page.count("turns(tps) is 100 turns/s, expected &gt;= 50 turns/s") == 2


def test_a_baseline_has_unit_device_and_conditions_of_every_case(baseline: Path) -> None:
    kept = json.loads(baseline.read_text())
    assert kept["schema_version"] == 3
    plain, bare = kept["cases"]
    assert (plain["case"], plain["model"], plain["device"]) == ("GAUGE", "gauge", "Gauge 3000")
    assert plain["conditions"] == {} and bare["conditions"]["turns_per_second"] == 100.0
    entry = {"value": 100.0, "low": 100.0, "high": 100.0, "n": 1, "unit": "turns/s", "better": "higher", "details": {}}
    assert plain["entries"] == bare["entries"] == {"turns(tps)": entry}


def test_a_case_that_breaks_its_limit_and_its_baseline_fails_with_both_sentences(
    project: Project, baseline: Path
) -> None:
    code, output = project.run(
        BASELINE=str(baseline),
        case={"overrides": {"turns_per_second": 40.0}, "expect": {"Gauge": {"turns(tps)": "within 5 % of 100"}}},
    )
    assert code == 1, output
    broken = "turns(tps) is 40 turns/s, expected within 5 % of 100 (95 to 105 turns/s)"
    worse = "turns(tps) is 60 % lower than the baseline: 40 turns/s against 100 turns/s"
    cases = project.cases()
    assert cases["GAUGE"]["reason"] == f"{broken}; worse than the baseline {baseline}: {worse}"
    assert cases["GAUGE"]["rounds"] == ["pass"] and cases["GAUGE"]["verdict"] == "fail"
    (row,) = cases["GAUGE"]["baseline"]["rows"]
    assert row["below"] and row["ratio"] == pytest.approx(0.4)
    # Without an outcome.py every setting is a condition: the limit is broken, the baseline says nothing.
    other = f"not compared with the baseline {baseline}: it is of turns_per_second 40.0, in the baseline 100.0"
    assert cases["BARE"]["reason"] == broken and cases["BARE"]["warnings"] == [other]
    for words in (f"Testcase GAUGE: {broken}", f"Testcase GAUGE: {worse}", f"Testcase BARE: {other}"):
        assert words in output
    page = project.result("report.html")
    assert worse in page and 'class="fail">turns(tps) is 40 turns/s' in page
    assert project.run("verify", max(path.name for path in (project.folder / "logs").glob("run*")))[0] == 0


ADAPTER = """
from vendors import ImageParameters, ProbeUnavailable, Vendor


def _open_probe():
    raise ProbeUnavailable("no abacus here")


VENDOR = Vendor(
    name="abacus",
    visible_devices_env="",
    backend={backend!r},
    container_options="",
    environment={{}},
    images={{}},
    open_probe=_open_probe,
    device_files=("/dev/abacus[0-9]*",),
)
"""


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.nightly), "nccl"])
def test_a_vendor_s_device_files_are_asked_for_where_ranks_use_them(project: Project, backend: str) -> None:
    """Those of gloo compute on the CPU: the vendor's hosts need no file for each of them."""
    folder = project.folder / "vendors/abacus"
    shutil.copytree(project.folder / "vendors/cpu/gauge-plain", folder / "gauge-plain", dirs_exist_ok=True)
    shutil.copytree(project.folder / "vendors/cpu/gauge-bare", folder / "gauge-bare", dirs_exist_ok=True)
    (folder / "adapter.py").write_text(ADAPTER.format(backend=backend))
    (folder / "__init__.py").touch()
    code, output = project.run("check", VENDOR="abacus")
    if backend == "gloo":
        assert code == 0 and "device files" not in output, output
    else:
        assert code == 3 and "1 device files /dev/abacus[0-9]*" in output, output


def test_an_unknown_metric_is_refused_before_anything_runs(project: Project) -> None:
    code, output = project.run("plan", case={"expect": {"turn_tps": ">= 50"}})
    assert code == 2
    for framework, name in (("plain", "GAUGE"), ("bare", "BARE")):
        assert f"{name}.expect.turn_tps = '>= 50': unknown metric; did you mean 'turns(tps)'?" in output
        assert f"metrics of gauge:{framework} with these settings: turns(tps)" in output


@pytest.mark.parametrize("half", [pytest.param("config", marks=pytest.mark.nightly), "outcome"])
def test_a_half_that_cannot_be_imported_is_a_mistake_of_its_case(project: Project, half: str) -> None:
    file = project.folder / f"training/benchmarks/gauge/plain/{half}.py"
    text = file.read_text()
    file.write_text(f"{text}\n1 / 0\n")
    try:
        code, output = project.run("plan")
    finally:
        file.write_text(text)
    line = len(text.splitlines()) + 2
    assert code == 2 and "Traceback" not in output
    assert f"{half}.py: line {line}: ZeroDivisionError: division by zero: it cannot be imported" in output
