"""The settings of the plan are those that run: whole runs of a benchmark whose config reads the environment."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.perflog import Event, parse_line
from tests import product
from tests.cluster.controller import wait_until
from tests.run_benchmarks.local_run import texts

SECRET = "s3cr3t-of-the-probe"
CASE_DIR = "vendors/cpu/probe-plain/config"
CONFIG = f"import os\nsteps = int(os.environ['PROBE_STEPS'])\napi_token = {SECRET!r}\n"
# What hosts set for the ranks, which would read it if they executed the config.
VARIABLES = "PROBE_STEPS=5\n"
SETTINGS = """
from pydantic import Field
from protocol.case_config import CaseConfig
from protocol.outcome import Metric
METRICS = (Metric(name="steps", unit="steps", better="higher", is_key=True),)
ENTRY_MODULE, LAUNCHER = "training.benchmarks.probe.plain.run", "processes"
class Config(CaseConfig):
    steps: int = Field(1, ge=1)
    seconds: float = Field(0.0, ge=0)
    api_token: str | None = None
"""
WORKLOAD = """
import os, sys, time
from protocol.arguments import parse_arguments
from protocol.case_file import settings_of
from protocol.masking import mask_config
from protocol.perflog import Event, PerfLogger, SubmitInfo
from training.benchmarks.probe.plain.config import Config
arguments = parse_arguments("probe", sys.argv[1:])
config, case_sha256 = settings_of(arguments, "probe", "plain", Config)
print("token", config.api_token, flush=True)
logger = PerfLogger(int(os.environ["RANK"]))
info = SubmitInfo(vendor="cpu", model="probe", framework="plain", case=arguments.case, case_sha256=case_sha256,
    config=mask_config(config.model_dump(mode="json")), world_size=2, nnodes=1, torch="", backend="")
logger.log(Event.SUBMIT_INFO, info.model_dump(mode="json"))
for event in (Event.INIT_START, Event.INIT_END, Event.TRAIN_START):
    logger.log(event)
time.sleep(config.seconds)
logger.log(Event.TRAIN_END)
logger.log(Event.FINISHED, {"steps": config.steps, "mode": oct(os.stat(arguments.case_file).st_mode & 0o777)})
"""
# The controller, and a host that changes a case.json once it was put right.
CHANGED_ON_THE_HOST = """
from pathlib import Path
from run_benchmarks.commands import cli
from run_benchmarks.rounds import round
prepare = round.prepare_node
def prepare_node(node, *words, **more):
    port = prepare(node, *words, **more)
    path = Path(node.plan.case_file_host)
    path.chmod(0o600)
    path.write_text(path.read_text().replace('"steps": 7', '"steps": 8'))
    return port
round.prepare_node = prepare_node
cli.main()
"""


class Project:
    """A copy of the project with a benchmark of its own, whose runs are kept beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = product.copy(folder), folder / "all results"
        files = {
            "training/benchmarks/probe/plain/config.py": SETTINGS,
            "training/benchmarks/probe/plain/run.py": WORKLOAD,
            f"{CASE_DIR}/config_probe.py": CONFIG,
            f"{CASE_DIR}/environment_variables.env": VARIABLES,
            "cluster.py": 'HOSTS = ["localhost"]\n',
            "cases.py": f"""
VENDOR, RUNTIME, PYTHON = "cpu", "process", {sys.executable!r}
FLAGPERF_PATH_HOST, FLAGPERF_LOG_PATH_HOST = {str(folder / "deploy")!r}, {str(self.results)!r}
CASES = ["ONE"]
ONE = {{"model": "probe", "framework": "plain", "config": "config_probe", "nproc": 2, "repeat": 2}}
""",
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for package in ("probe", "probe/plain"):
            (folder / "training/benchmarks" / package / "__init__.py").touch()

    def argv(self, *words: str, program: tuple[str, ...] = ("run_benchmarks/run.py",)) -> list[str]:
        files = ["--cluster-conf", "cluster.py", "--test-conf", "cases.py"]
        return [sys.executable, *program, *files, *words]

    def call(self, *words: str, steps: int = 7, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PROBE_STEPS": str(steps), "PYTHONPATH": "."}
        argv = self.argv(*words, **options)
        return subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=200)

    @property
    def run(self) -> Path:
        return max(self.results.glob("run*"))

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "run.json").read_text()))

    def logged(self, event: Event) -> list[dict[str, Any]]:
        """The values of that event of each rank's log."""
        lines = [line for path in sorted(self.run.rglob("rank*.out.log")) for line in path.read_text().splitlines()]
        records = [record for record in map(parse_line, lines) if record is not None]
        return [record.value for record in records if record.event is event and isinstance(record.value, dict)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """After a whole run with PROBE_STEPS=7."""
    project = Project(tmp_path_factory.mktemp("project"))
    done = project.call()
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.mark.nightly
def test_the_ranks_run_with_the_settings_of_the_plan(ran: Project) -> None:
    (case,) = ran.record()["cases"]
    submitted, finished = ran.logged(Event.SUBMIT_INFO), ran.logged(Event.FINISHED)
    assert case["config"]["steps"] == 7
    assert [each["config"]["steps"] for each in submitted] == [each["steps"] for each in finished] == [7] * 4
    assert {each["mode"] for each in finished} == {"0o400"}
    (planned,) = json.loads(ran.call("plan").stdout)["cases"]
    assert planned["config"] == case["config"]
    rounds = [json.loads(path.read_text()) for path in ran.run.rglob("round.json")]
    hashes = {each["case_sha256"] for each in (*submitted, *rounds)}
    assert hashes == {planned["case_sha256"]} and len(rounds) == 2
    assert ran.call("verify", str(ran.run)).returncode == 0


def test_neither_the_config_file_nor_its_secrets_are_left_anywhere(ran: Project) -> None:
    manifest = (ran.run / "code.manifest").read_text()
    assert "probe/plain/run.py" in manifest and "/config/" not in manifest and "pytorch/base.py" not in manifest
    assert "token ***" in next(ran.run.rglob("rank0.out.log")).read_text()
    files = [path for root in (ran.results, ran.folder / "deploy") for path in root.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert not list(ran.results.rglob(".hosts/*/*"))


def test_a_case_file_that_a_host_changed_fails_the_round(project: Project) -> None:
    done = project.call("--repeat", "1", program=("-c", CHANGED_ON_THE_HOST))
    assert done.returncode == 1
    (case,) = project.record()["cases"]
    assert case["reason"].startswith("rank 0: it ran another case.json than the plan's: sha256 ")
    assert project.logged(Event.FINISHED)[0]["steps"] == 8


@pytest.mark.nightly
def test_a_resume_goes_on_with_what_the_run_began_with_and_says_what_changed(project: Project) -> None:
    environment = os.environ | {"PROBE_STEPS": "7"}
    argv = project.argv("--set", "ONE.overrides.seconds=4.0", "--save-baseline", "good.json")
    controller = subprocess.Popen(argv, cwd=project.folder, env=environment, stdout=subprocess.DEVNULL)
    wait_until("the first round", lambda: any(True for _ in texts(project.results / ".hosts", "rank1.out.log")))
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    (project.folder / f"{CASE_DIR}/config_probe.py").write_text(CONFIG + "timeout_s = 5.0\n")
    assert not (project.folder / "good.json").exists()
    resumed = project.call("resume", project.run.name, steps=9)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert [each["steps"] for each in project.logged(Event.FINISHED)] == [7] * 4
    log = (project.run / "run.log").read_text()
    assert "ONE: config_probe.py or the case's overrides changed since the run began (" in log
    assert "steps was 7, is 9" in log and "timeout_s was 600.0, is 5.0" in log
    assert project.call("verify", str(project.run)).returncode == 0
    (kept,) = json.loads((project.folder / "good.json").read_text())["cases"]
    assert (kept["run"], kept["entries"]["steps"]["value"]) == (project.run.name, 7.0)
