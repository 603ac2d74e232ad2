"""Golden plans: exactly what would happen, case by case, round by round, node by node.

`UPDATE_GOLDEN=1 pytest tests/run_benchmarks/plan/test_plan.py` writes the files anew;
read the difference before a commit.
"""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.plan import resolve as resolving
from run_benchmarks.plan.plan import MASTER_PORT_SLOT, Plan
from run_benchmarks.plan.planner import make_plan, nested_mount_points, plan_round
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.container_options import ContainerOptions
from run_benchmarks.settings.settings import Settings, load_settings
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load

GOLDEN = Path(__file__).parents[2] / "data" / "plans"
HOME = "/home/user"
PYTHON = "/opt/python"
TWO_HOSTS = 'HOSTS = ["node1", "node2"]\nSSH_USER = "flagperf"\nMASTER_PORT = 30000\nNETWORK_INTERFACE = "eth1"\n'
DOCKER = """
VENDOR = "nvidia"
ACCE_CONTAINER_OPT = " --gpus all --ulimit memlock=-1 --cap-add IPC_LOCK -v /opt/tools:/opt/tools:ro -e NCCL_ALGO=Ring"
FLAGPERF_PATH_HOST = "/home/flagperf/training"
FLAGPERF_PATH_CONTAINER = "/workspace/flagperf/training"
FLAGPERF_LOG_PATH_HOST = FLAGPERF_PATH_HOST + "/result/"
FLAGPERF_LOG_PATH_CONTAINER = FLAGPERF_PATH_CONTAINER + "/result/"
SHM_SIZE = "32G"
CLEAR_CACHES = True
IMAGE = "site/pytorch:1"
MONITOR_INTERVAL = 0.5
TIME_LIMIT = 7200
CASES = ["ALL_REDUCE_H100_2X8", "ONE_GPU"]
ALL_REDUCE_H100_2X8 = {
    "model": "network", "framework": "pytorch", "config": "config_H100x2x8", "repeat": 2, "nnodes": 2, "nproc": 8,
    "data_dir_host": "/home/datasets_ckpt/bert/train/", "data_dir_container": "/mnt/data/bert/train/",
    "overrides": {"sizes": "1M", "check": False},
}
ONE_GPU = {
    "model": "network", "framework": "pytorch", "config": "config_H100x1x1", "nproc": 1, "time_limit": 60.5,
}
"""
PROCESS = """
VENDOR = "cpu"
RUNTIME = "process"
CASES = {"network:pytorch:CPU:2:2:1": "/data"}
"""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)


def plan_of(settings: Settings) -> Plan:
    return make_plan(settings, resolve(settings, local_python=PYTHON), run_id="run20261121191924", code_digest="0" * 16)


def check_golden(name: str, settings: Settings) -> None:
    """Compare with the file. Of a case config it holds what file and overrides set, not the benchmark's defaults."""
    hashes = {}
    file = GOLDEN / f"{name}.json"
    plan = plan_of(settings)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    for case, resolved in zip(plan.cases, resolve(settings, local_python=PYTHON).cases, strict=True):
        for setting in case.config.keys() - resolved.config.model_fields_set:
            del case.config[setting], case.config_origins[setting]
        hashes[case.case_sha256] = f"<sha256 of case.json of {case.name}>"
    text = plan.model_dump_json(indent=2) + "\n"
    for found, word in hashes.items():  # the benchmark's defaults are in it
        text = text.replace(found, word)
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert json.loads(text) == json.loads(file.read_text())


def test_the_shipped_default() -> None:
    config = ROOT / "run_benchmarks" / "config"
    check_golden("default", load_settings(config / "cluster_conf.py", config / "test_conf.py"))


def test_the_plan_with_docker_on_two_hosts_is_the_kept_one(load: Load) -> None:
    settings = load(DOCKER, TWO_HOSTS)
    check_golden("docker_two_hosts", settings)
    assert nested_mount_points(settings) == ("result",)


def test_the_plan_with_processes_on_two_hosts_is_the_kept_one(load: Load) -> None:
    check_golden("process_two_hosts", load(PROCESS, TWO_HOSTS))


class Watch:
    """Notes what code does outside of its own memory, as Python's audit hooks tell."""

    EVENTS = ("open", "os.", "socket.", "subprocess.", "shutil.", "glob.", "pwd.", "tempfile.", "import")

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_on = False
        sys.addaudithook(self._hear)  # stays for ever

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event.startswith(self.EVENTS):
            self.seen.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def test_the_planner_does_no_io(load: Load, watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file, not even of requirements or ssh, no folder, socket or process; what needs one was looked up before."""
    (tmp_path / "requirements.txt").write_text("numpy==2.0  # of the case\n")
    (tmp_path / "ssh_config").write_text("Host node1\n  User someone\n")
    monkeypatch.setattr(resolving, "case_requirements", lambda _: (tmp_path / "requirements.txt",))
    cluster = f"{TWO_HOSTS.replace('SSH_USER = ', '_user = ')}SSH_CONFIG = {str(tmp_path / 'ssh_config')!r}\n"
    test = PROCESS.replace("CPU:2:2:1", "CPU:1:2:3")
    prepared = [(load(DOCKER, TWO_HOSTS), DOCKER), (load(test, cluster), test)]
    for settings, text in prepared:
        resolved = resolve(settings, local_python=PYTHON)
        watch.is_on = True
        try:
            plan = make_plan(settings, resolved, run_id="run20261121191924", code_digest="0" * 16)
            for case in resolved.cases:
                plan_round(plan, settings, resolved, case, plan.cases[0].hosts, index=1, attempt=2)
        finally:
            watch.is_on = False
        assert watch.seen == [], text
    assert plan.cases[0].requirements == ("numpy==2.0",)
    assert plan.code_dir_host == "/home/someone/.clusterdyno/code/0000000000000000"
    watch.is_on = True
    (tmp_path / "ssh_config").read_text()
    watch.is_on = False
    assert len(watch.seen) == 1


def test_an_image_is_named_by_its_content(load: Load) -> None:
    base = 'VENDOR = "cpu"\nBASE_IMAGE = "{}"\nCASES = {{"network:pytorch:CPU:1:2:1": ""}}\n'
    one, same, other = (plan_of(load(base.format(name))) for name in ("python:3.11", "python:3.11", "python:3.12"))
    images = [plan.cases[0].rounds[0].nodes[0].image for plan in (one, same, other)]
    assert images[0] is not None
    assert images[0].startswith("clusterdyno/cpu-pytorch:")
    assert images[0] == images[1] != images[2]


def test_the_master_port_is_filled_in_at_the_start(load: Load) -> None:
    task = plan_of(load(DOCKER, TWO_HOSTS)).cases[0].rounds[0].nodes[1].workload
    argv = task.bound_argv(29555)
    assert argv[argv.index("--master_port") + 1] == "29555"
    assert MASTER_PORT_SLOT not in shlex.join(argv)
    assert MASTER_PORT_SLOT in shlex.join(task.argv)


def test_ranks_and_hosts_follow_the_order_of_hosts(load: Load) -> None:
    case = plan_of(load(DOCKER, TWO_HOSTS)).cases[0]
    assert [round_.index for round_ in case.rounds] == [1, 2]
    first, second = case.rounds[0].nodes
    assert (first.host, first.ranks) == ("node1", tuple(range(8)))
    assert (second.host, second.ranks) == ("node2", tuple(range(8, 16)))
    assert case.rounds[0].master == "node1"
    names = [task.name for r in case.rounds for node in r.nodes for task in (node.workload, node.monitor)]
    assert len(set(names)) == len(names) == 8


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", 8 << 30),
        ('SHM_SIZE = "1G"', 1 << 30),
        ('ACCE_CONTAINER_OPT = "--shm-size 2g"', 2 << 30),
        ('SHM_SIZE = "1G"\nACCE_CONTAINER_OPT = "--shm-size 2g"', 1 << 30),
    ],
)
def test_shared_memory(lines: str, expected: int, load: Load) -> None:
    plan = plan_of(load(TEST.replace('"process"', '"docker"') + lines))
    assert plan.cases[0].rounds[0].nodes[0].options.shm_size == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", 32768),
        ("PIDS_LIMIT = 500", 500),
        ('ACCE_CONTAINER_OPT = "--pids-limit 700"', 700),
        ('PIDS_LIMIT = 500\nACCE_CONTAINER_OPT = "--pids-limit 700"', 500),
    ],
)
def test_the_limit_of_processes(lines: str, expected: int, load: Load) -> None:
    plan = plan_of(load(TEST.replace('"process"', '"docker"') + lines))
    assert plan.cases[0].rounds[0].nodes[0].options.pids_limit == expected


def test_who_wins_among_environments(load: Load) -> None:
    """The vendor's defaults, then the case's file, then the user's -e; what the launch needs stands above all."""
    plan = plan_of(load(DOCKER.replace("-e NCCL_ALGO=Ring", "-e NCCL_DEBUG=INFO -e PYTHONPATH=/x"), TWO_HOSTS))
    environment = plan.cases[0].rounds[0].nodes[0].workload.environment
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["PYTHONPATH"] == "/workspace/flagperf/training"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(("name", "visible"), [("", None), ("MLU_VISIBLE_DEVICES", "0,1")])
def test_the_name_of_the_visible_devices(name: str, visible: str | None, load: Load) -> None:
    plan = plan_of(load(TEST + f"ACCE_VISIBLE_DEVICE_ENV_NAME = {name!r}\n"))
    environment = plan.cases[0].rounds[0].nodes[0].workload.environment
    assert environment.get("MLU_VISIBLE_DEVICES") == visible
    assert "" not in environment


def test_processes_get_nothing_of_a_container(load: Load) -> None:
    plan = plan_of(load(TEST + 'ACCE_CONTAINER_OPT = "-e A=1 --ipc host"\n'))
    node = plan.cases[0].rounds[0].nodes[0]
    assert (node.image, node.mounts, node.options) == (None, (), ContainerOptions())
    assert "A" not in node.workload.environment
    assert node.workload.argv[0] == PYTHON


def test_an_interpreter_of_the_user_s_is_taken(load: Load) -> None:
    for cluster in (CLUSTER, TWO_HOSTS):
        plan = plan_of(load(TEST + 'PYTHON = "/usr/bin/python3.12"\n', cluster))
        assert plan.cases[0].rounds[0].nodes[0].workload.argv[0] == "/usr/bin/python3.12"
        assert plan.cases[0].rounds[0].nodes[0].monitor.argv[0] == "/usr/bin/python3.12"


def test_names_fit_docker(load: Load) -> None:
    settings = load(TEST.replace('"process"', '"docker"'))
    case = settings.model_copy(update={"cases": {"Big+one": settings.cases["ONE"]}})
    name = plan_of(case).cases[0].rounds[0].nodes[0].workload.name
    assert name == "clusterdyno-run20261121191924-big_one-014e7597-r1-n0"


def test_folders_inside_the_code_folder_are_made_before_it_is_mounted_read_only(load: Load) -> None:
    docker = TEST.replace('"process"', '"docker"') + 'FLAGPERF_PATH_CONTAINER = "/w/code"\n'
    nested = 'FLAGPERF_LOG_PATH_CONTAINER = "/w/code/a/result"\n'
    nested += 'ONE |= {"data_dir_host": "/d", "data_dir_container": "/w/code/d/"}\n'
    assert nested_mount_points(load(docker)) == ()
    assert nested_mount_points(load(docker + nested)) == ("a/result", "d")
    assert nested_mount_points(load(TEST + nested)) == ()
    assert nested_mount_points(load(docker + 'FLAGPERF_LOG_PATH_CONTAINER = "/w/code2"')) == ()
