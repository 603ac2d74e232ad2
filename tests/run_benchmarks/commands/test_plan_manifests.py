"""What `run.py plan` shows to a scheduler, word for word: Slurm's script with its steps, and JobSets of Kubernetes.

`UPDATE_GOLDEN=1` writes the files anew; read the difference before a commit.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from run_benchmarks.commands.cli import main
from run_benchmarks.commands.plan_manifests import job_sets, slurm_script
from run_benchmarks.errors import InputProblems
from run_benchmarks.hosts.slurm.allocation import AllocationError
from run_benchmarks.hosts.slurm.script import Request, batch_script
from run_benchmarks.session.preparation import PreparedRun, prepare
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.plan.test_plan import DOCKER, HOME, PROCESS, TWO_HOSTS

GOLDEN = Path(__file__).parents[2] / "data" / "plans"
RUN = "run20261121191924"
SLURM = (
    'LAUNCHER = "slurm"\nHOSTS = "gpu[01-02]"\nSLURM_PARTITION = "main"\nSLURM_GRES = "gpu:8"\nSLURM_TIME = "2:00:00"\n'
)
TEST = PROCESS.replace('"process"', '"slurm"') + 'PYTHON = "/opt/venv/bin/python"\n'


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)


def check_golden(name: str, text: str, prepared: PreparedRun) -> None:
    """Compare with the file; hashes of code and settings change with every commit."""
    text = re.sub(r"[0-9a-f]{64}", "<sha256>", text.replace(prepared.plan.code_digest, "<code>"))
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def test_slurm_receives_this_script_and_these_steps(load: Load, tmp_path: Path) -> None:
    prepared = prepare(load(TEST, SLURM), RUN)
    text = slurm_script(prepared)
    check_golden("slurm_two_hosts.sh", text, prepared)
    assert text.count("srun --jobid=$SLURM_JOB_ID") == 2
    if shutil.which("shellcheck"):
        (tmp_path / "run.sh").write_text(text)
        subprocess.run(["shellcheck", "--shell=sh", tmp_path / "run.sh"], check=True, stdout=sys.stderr)


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        (None, "10"), ("2:00:00", "10"), ("1-0", "10"), ("11", "10"), ("UNLIMITED", "10"), ("0-0:10:01", "10"),
        ("5", "5"), ("10:00", "10:00"), ("0:05:00", "0:05:00"), ("0-0:9", "0-0:9"),
    ],
)  # fmt: skip
def test_a_check_asks_for_a_short_job_that_fits_before_those_that_wait(
    limit: str | None, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, test = tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"
    cluster.write_text(SLURM.partition("SLURM_TIME")[0] + (f"SLURM_TIME = {limit!r}\n" if limit else ""))
    test.write_text(TEST)
    scripts = []

    def submitted(request: Request, *_: object, **__: object) -> None:
        scripts.append(batch_script(request))
        raise AllocationError("this is only a test")

    monkeypatch.setattr("run_benchmarks.session.allocation.obtain", submitted)
    monkeypatch.setattr("run_benchmarks.session.allocation.left_over", lambda *_: None)
    monkeypatch.setattr("run_benchmarks.session.allocation._refuse_out_of_service", lambda hosts: None)
    monkeypatch.setattr("sys.argv", ["run.py", "check", "--cluster-conf", str(cluster), "--test-conf", str(test)])
    with pytest.raises(SystemExit):
        main()
    (script,) = scripts
    assert re.findall(r"--time=(\S+)", script) == [asked]


def test_the_steps_of_the_plan_are_in_the_container(load: Load) -> None:
    script = slurm_script(
        prepare(load(TEST, f'{SLURM}SLURM_APPTAINER = "/a.sif"\nSLURM_SETUP = "module load x"\n'), RUN)
    )
    line = "apptainer exec --pwd=/ --bind=/data,/home/user/.clusterdyno,/home/user/.clusterdyno/result /a.sif"
    assert script.count(line) == 2
    assert all(line.startswith("#") for line in script.partition("exec sleep infinity\n")[2].splitlines())


def test_slurm_receives_a_script_of_each_case_with_its_own_number_of_nodes(load: Load) -> None:
    two = TEST.replace('{"network:pytorch:CPU:2:2:1": "/data"}', '["ONE", "TWO"]') + "".join(
        f"{name} = {{'model': 'network', 'framework': 'pytorch', 'config': 'config_CPUx1x2', 'nnodes': {nnodes},"
        f" 'nproc': 2}}\n"
        for name, nnodes in (("ONE", 1), ("TWO", 3))
    )
    scripts = slurm_script(prepare(load(two, "LAUNCHER = 'slurm'\nHOSTS = 3\nALLOCATION = 'case'\n"), RUN))
    one, other = scripts.split("\n\n")
    assert "--nodes=1-1" in one and "--nodes=3-3" in other and "--nodelist" not in one.partition("exec")[0]
    assert (one.count("srun"), other.count("srun")) == (1, 3)


def test_kubernetes_receives_a_job_set_for_each_round(load: Load) -> None:
    prepared = prepare(load(DOCKER, TWO_HOSTS), RUN)
    manifests = job_sets(prepared)
    check_golden("job_sets.json", json.dumps(manifests, indent=2) + "\n", prepared)
    assert [len(each["spec"]["replicatedJobs"]) for each in manifests["items"]] == [2, 2, 1]
    names = [each["metadata"]["name"] for each in manifests["items"]]
    assert len(set(names)) == 3 and all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in names)


TYPES = json.loads((GOLDEN / "jobset_types.json").read_text())["types"]
PRIMITIVE = {"string": str, "integer": int, "boolean": bool}


def mistakes(value: object, kind: str, where: str = "") -> Iterator[str]:
    """What is wrong with a part of a manifest by the documented types: unknown and missing fields, other types."""
    if kind.startswith("[]") and isinstance(value, list):
        for number, item in enumerate(value):
            yield from mistakes(item, kind[2:], f"{where}[{number}]")
    elif kind.startswith("{}") and isinstance(value, dict):
        for key, item in value.items():
            yield from mistakes(item, kind[2:], f"{where}.{key}")
    elif kind in TYPES and isinstance(value, dict):
        yield from (f"{where}: lacks {name}" for name in TYPES[kind]["required"] if name not in value)
        for key, item in value.items():
            known = TYPES[kind]["fields"].get(key)
            yield from [f"{where}.{key}: unknown"] if known is None else mistakes(item, known, f"{where}.{key}")
    elif kind != "any" and not (kind in PRIMITIVE and type(value) is PRIMITIVE[kind]):
        yield f"{where}: {value!r} is no {kind}"


def test_a_job_set_has_the_fields_and_types_of_the_documented_api(load: Load) -> None:
    manifests = job_sets(prepare(load(DOCKER, TWO_HOSTS), RUN))
    assert [*chain.from_iterable(mistakes(each, "JobSet") for each in manifests["items"])] == []
    broken = manifests["items"][0]
    pod = broken["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del pod["containers"][0]["name"]
    broken["spec"]["replicas"], pod["hostNetwork"] = 1, "yes"
    assert sorted(each.rpartition(".")[2] for each in mistakes(broken, "JobSet")) == [
        "containers[0]: lacks name",
        "hostNetwork: 'yes' is no boolean",
        "replicas: unknown",
    ]


def test_names_of_pods_fit_and_stay_apart_however_long_a_case_is_called(load: Load) -> None:
    long = "A" * 60
    text = DOCKER.replace("ALL_REDUCE_H100_2X8", long)
    manifests = job_sets(prepare(load(text, TWO_HOSTS), RUN))
    names = [each["metadata"]["name"] for each in manifests["items"]]
    jobs = [job["name"] for each in manifests["items"] for job in each["spec"]["replicatedJobs"]]
    assert len(set(names)) == len(names) and max(map(len, names)) + len(f"-{max(jobs)}-0-0-abcde") <= 63


def test_a_plan_that_does_not_fit_a_scheduler_is_refused(load: Load) -> None:
    with pytest.raises(InputProblems, match="LAUNCHER = 'slurm'"):
        slurm_script(prepare(load(PROCESS, TWO_HOSTS), RUN))
    with pytest.raises(InputProblems, match="a pod needs an image"):
        job_sets(prepare(load(PROCESS, TWO_HOSTS), RUN))
