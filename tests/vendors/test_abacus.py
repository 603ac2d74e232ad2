"""A vendor that is one folder and a device that is no GPU: everything that a case reports is proved to come from it."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.perflog import parse_line
from tests import product
from tests.cluster import seed
from tests.cluster.engine import Engine
from tests.tiers import NIGHTLY
from tests.vendors.building import abacus_library

HERE = Path(__file__).parent
BYTES = 256 << 20
DEVICES = [(f"abacus:{rank}", "Abacus 3000") for rank in range(2)]
CASES: dict[str, dict[str, Any]] = {
    "LLAMA": {"model": "llama", "config": "config_CPUx1x2", "overrides": {
        "max_steps": 12, "target_loss": None, "eval_interval_samples": 384, "attention": "eager"}},
    "NETWORK": {"model": "network", "config": "config_CPUx1x2", "overrides": {"sizes": "8..64K x64", "iterations": 2}},
    "BERT": {"model": "bert", "config": "config_CPUx1x2", "overrides": {
        "max_steps": 4, "eval_interval_samples": 128, "eval_start_samples": 128, "attention": "eager",
        "target_mlm_accuracy": None, "log_freq": 1}},
    "BASE": {"model": "base", "config": "config_CPUx1x2", "overrides": {
        "copy_bytes": 1 << 20, "iterations": 2, "matmul_size": 128,
        "tests": ["matmul_fp32", "memory", "memory_capacity", "host_to_device", "host_to_device_numa",
                  "device_to_host", "peers", "host_matmul"]}},
    "AICB": {"model": "aicb", "config": "config_megatron", "overrides": {"epoch_num": 2, "num_layers": 2}},
}  # fmt: skip


class Project:
    """A copy of the repository in which the abacus is a vendor with the cases of vendor cpu."""

    def __init__(self, folder: Path) -> None:
        self.folder = product.copy(folder)
        product.copy_folder(HERE / "abacus", folder / "vendors/abacus")
        shutil.copy(HERE / "abacus_figures.py", folder)
        self.environment = {"ABACUS_LIBRARY": str(abacus_library()), "ABACUS_BYTES": str(BYTES)}
        for case in CASES.values():
            of_case = f"{case['model']}-pytorch"
            shutil.copytree(folder / f"vendors/cpu/{of_case}", folder / f"vendors/abacus/{of_case}")
            variables = "".join(f"{name}={value}\n" for name, value in self.environment.items())
            (folder / f"vendors/abacus/{of_case}/config/environment_variables.env").write_text(variables)

    def run(self, vendor: str, *names: str, **changes: object) -> Path:
        """Run cases with two ranks on this machine; the run's folder."""
        done, logs = self.ended(vendor, *names, **changes)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return max(logs.glob("run2*"))

    def ended(self, vendor: str, *names: str, **changes: object) -> tuple[subprocess.CompletedProcess[str], Path]:
        """A run of cases with two ranks on this machine, and where its folder is; `changes` are of test_conf.py."""
        logs = self.folder / f"logs_{vendor}_{'_'.join(names)}"
        conf = {
            "VENDOR": vendor,
            "RUNTIME": "process",
            "CASES": list(names),
            "FLAGPERF_PATH_HOST": str(self.folder / "deploy"),
            "FLAGPERF_LOG_PATH_HOST": str(logs),
            **{name: {**CASES[name], "framework": "pytorch", "nproc": 2} for name in names},
            **changes,
        }
        (self.folder / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in conf.items()))
        (self.folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
        files = ["--cluster-conf", "cluster_conf.py", "--test-conf", "test_conf.py"]
        argv = [sys.executable, "run_benchmarks/run.py", "run", *files]
        return subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=600), logs

    def figures(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What shared code finds on the device, in a process of its own."""
        argv = [sys.executable, "abacus_figures.py", *words]
        environment = os.environ | self.environment
        return subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("abacus"))


def events(run: Path, case: str, rank: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Name and value of each event that a rank logged."""
    (log,) = (run / case).glob(f"round1/*/rank{rank}.out.log")
    found = filter(None, map(parse_line, log.read_text(encoding="utf-8").splitlines()))
    return [(str(each.event), each.value if isinstance(each.value, dict) else {}) for each in found]


def value_of(run: Path, case: str, event: str, rank: int = 0) -> dict[str, Any]:
    return next(value for name, value in events(run, case, rank) if name == event)


def losses(run: Path, case: str) -> list[float]:
    names = ("loss", "eval_loss")
    return [value[name] for _, value in events(run, case) for name in names if value.get(name) is not None]


@pytest.mark.nightly
def test_each_figure_of_shared_code_is_the_device_s(project: Project) -> None:
    done = project.figures()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["device"], found["name"], found["product_is_on"]) == ("abacus:1", "Abacus 3000", "abacus:1")
    # The device was busy so long, and the host did not wait: its own clock would tell microseconds.
    assert found["busy_s"] >= 0.05 and found["synchronized"] == 1 and found["events"] > 0
    assert found["cycles_per_ns"] == pytest.approx(1, rel=0.01)
    # The device's own time, not that of the host, which is slower to queue the call than the device is to do it.
    assert found["slowly_queued_ns"] == pytest.approx(1e6, rel=0.05)
    # Nothing but one buffer lies on the device; the host's process is far larger.
    assert (found["peak"], found["free"], found["total"]) == (found["held"], BYTES - found["held"], BYTES)
    assert found["device_of_aiob"] == "abacus:0"
    assert found["host_stood_still"] and found["own_moved"] and found["restored"] and found["seed"] == 7
    assert BYTES - (64 << 20) < found["taken"] <= BYTES and found["capacity_is_correct"] and found["copy_is_correct"]


@pytest.mark.nightly
def test_a_view_operator_without_a_kernel_of_the_device_is_an_error(project: Project) -> None:
    done = project.figures("view")
    assert done.returncode != 0
    assert "abacus_test::peek appears to be a view operator" in done.stderr


def all_is_of_the_device(run: Path, gloo: Path, cases: Sequence[str] = tuple(CASES)) -> None:
    """Every rank of every case computed on its device, its results are right, and the losses are those over gloo."""
    for case in cases:
        submitted = [value_of(run, case, "SUBMIT_INFO", rank) for rank in range(2)]
        assert [(each["device"], each["device_name"]) for each in submitted] == DEVICES, case
        assert value_of(run, case, "FINISHED"), case
    finished = value_of(run, "LLAMA", "FINISHED")
    assert finished["peak_tflops"] == 0.1 and finished["mfu"] > 0 and finished["one_training"] is True
    # The host's process has several times as much, with torch alone.
    assert 0 < finished["peak_memory_bytes"] < 64 << 20 < value_of(gloo, "LLAMA", "FINISHED")["peak_memory_bytes"]
    checked = [value for name, value in events(run, "NETWORK") if name == "STEP_END"]
    assert checked and all(value["correct"] == "pass" for value in checked)
    assert len(losses(run, "LLAMA")) > 2 and ("BERT" not in cases or losses(run, "BERT"))
    # Two runs over gloo differ themselves by one unit of float32 (1e-7) after a dozen steps.
    for case in {path.name for path in gloo.iterdir()} & {"LLAMA", "BERT"}:
        assert losses(run, case) == pytest.approx(losses(gloo, case), rel=1e-6), case


@pytest.mark.nightly
def test_every_benchmark_runs_on_the_device_in_processes(project: Project) -> None:
    run = project.run("abacus", *CASES)
    all_is_of_the_device(run, project.run("cpu", "LLAMA", "BERT"))
    steps = {value["test"]: value for name, value in events(run, "BASE") if name == "STEP_END"}
    matrix = steps["peers"]["peers_of_ranks"]
    assert [[peer is None for peer in row] for row in matrix] == [[True, False], [False, True]]
    assert steps["peers"]["values_of_ranks"] == [matrix[0][1], matrix[1][0]] and steps["peers"]["correct"] == "pass"
    assert value_of(run, "BASE", "FINISHED")["peers_farthest_GBps"] == min(matrix[0][1], matrix[1][0])
    assert steps["host_matmul"]["correct"] == "pass" and not steps["host_matmul"]["odd_ranks"]


@pytest.fixture
def device_nodes() -> Iterator[None]:
    """Nodes of two abacuses on this machine."""
    nodes = [Path(f"/dev/abacus{index}") for index in range(2)]
    for node in nodes:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    yield
    for node in nodes:
        node.unlink()


def in_containers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings of a run in containers of the engine, where the device counts the nodes that it is given."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
    library = abacus_library()
    options = f"-v {library}:{library}:ro -e ABACUS_NODES=1"
    return {"RUNTIME": "docker", "IMAGE": seed.case_image().tag, "ACCE_CONTAINER_OPT": options}


@pytest.mark.nightly
@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("device_nodes")
def test_every_benchmark_runs_in_a_container_on_the_device_nodes_that_the_vendor_s_options_give_it(
    project: Project, docker_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BERT's in make nightly alone: it trains as LLaMA's case does."""
    cases = [name for name in CASES if NIGHTLY or name != "BERT"]
    run = project.run("abacus", *cases, **in_containers(docker_engine, monkeypatch))
    all_is_of_the_device(run, project.run("cpu", "LLAMA"), cases)


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("device_nodes")
def test_a_container_without_the_nodes_has_no_device(
    project: Project, docker_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = project.folder / "vendors/abacus/adapter.py"
    written = adapter.read_text(encoding="utf-8")
    adapter.write_text(written.replace("--device /dev/abacus0 --device /dev/abacus1", ""), encoding="utf-8")
    try:
        done, _ = project.ended("abacus", "LLAMA", **in_containers(docker_engine, monkeypatch))
    finally:
        adapter.write_text(written, encoding="utf-8")
    assert done.returncode != 0, done.stdout[-6000:]
