"""The monitor as a process: what it writes, when it ends, what it survives."""

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from monitors.ending import Ending
from run_benchmarks.results.samples.summary import summarize
from tests.monitors.running import REPOSITORY, Monitor, new_vendor

ENDLESS = "--max_seconds=100"
FAST = "--interval=0.1"


def test_sigterm_ends_with_a_last_sample_and_a_summary(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, ENDLESS) as monitor:
        monitor.wait_for("cpu", 3)
        assert monitor.end(by=signal.SIGTERM) == (0, "")
    *_, last = monitor.records()
    assert last["source"] == "monitor"
    assert last["summary"]["reason"] == "SIGTERM"
    assert last["summary"]["samples"] == len([r for r in monitor.records() if r["source"] == "cpu"])
    assert last["summary"]["interval_s"] == 0.1
    assert set(last["summary"]["lateness_ms"]) == {"p50", "p95", "max"}
    assert last["summary"]["cpu_s"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_ending_signals_too(tmp_path: Path, number: signal.Signals) -> None:
    with Monitor(tmp_path, FAST, ENDLESS) as monitor:
        monitor.wait_for("mem")
        assert monitor.end(by=number) == (0, "")
    assert summarize(tmp_path / "monitor.jsonl").reason == number.name


def test_every_sample_is_on_both_clocks_and_in_both_forms(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, "--per_core", ENDLESS) as monitor:
        monitor.wait_for("mem", 3)
        monitor.end(by=signal.SIGTERM)
    records = [record for record in monitor.records() if record["source"] == "cpu"]
    assert {record["schema"] for record in monitor.records()} == {1}
    times = [(record["t_ms"], record["monotonic_s"]) for record in monitor.records()]
    assert times == sorted(times)
    lines = monitor.lines("cpu_monitor.log")
    assert len(lines) == len(records)
    for line, record in zip(lines, records, strict=True):
        moment, value = line.split("\t")
        assert datetime.fromisoformat(moment).timestamp() == pytest.approx(record["t_ms"] / 1000, abs=0.0011)
        assert float(value) == record["values"]["utilization_percent"]
        assert len(record["values"]["cores_percent"]) == os.cpu_count()
    assert monitor.comments("mem_monitor.log") == ["# time\tused_percent"]
    assert len(monitor.lines("mem_monitor.log")) == len(records)


def test_what_a_host_lacks_is_said_once(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, ENDLESS, f"--powercap={tmp_path}/none") as monitor:
        monitor.wait_for("cpu", 3)
        monitor.end(by=signal.SIGTERM)
    said = [r for r in monitor.records() if "unavailable" in r]
    assert {"source": "accelerator", "unavailable": "vendor cpu has no accelerator"}.items() <= said[0].items()
    rapl = [r["unavailable"] for r in said if r.get("meter") == "rapl"]
    assert len(rapl) == 1 and re.search("virtual machine without power counters|kernel has no power counters", rapl[0])
    power = json.loads((tmp_path / "sys_info.json").read_text())["power"]
    if not list(Path("/dev").glob("ipmi*")):
        ipmi = next(r["unavailable"] for r in said if r.get("meter") == "ipmi")
        assert power == {"machine": [], "impossible": f"rapl: {rapl[0]}; ipmi: {ipmi}"}
    assert monitor.comments("pwr_monitor.log").count(f"# unavailable: rapl: {rapl[0]}") == 1
    assert not (tmp_path / "accelerator_monitor.log").exists()
    assert "accelerator" not in {r["source"] for r in monitor.records() if "values" in r}


def test_it_ends_by_itself_after_max_seconds(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, "--max_seconds=0.5") as monitor:
        assert monitor.end() == (0, "")
    assert summarize(tmp_path / "monitor.jsonl").reason == "max_seconds are over"


def test_it_ends_when_the_workloads_lock_is_free_again(tmp_path: Path) -> None:
    lock = tmp_path / "workload.lock"
    with Monitor(tmp_path, FAST, ENDLESS, f"--lock={lock}") as monitor:
        monitor.wait_for("cpu", 2)
        with lock.open("w") as workload:
            fcntl.flock(workload, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen = len(monitor.wait_for("cpu"))
            monitor.wait_for("cpu", seen + 15)  # far longer than the lock takes to be looked at
        assert monitor.end() == (0, "")
    assert summarize(tmp_path / "monitor.jsonl").reason == "the workload's lock is free again"


def test_a_lock_not_taken_yet_ends_nothing_and_stays_free_to_take(tmp_path: Path) -> None:
    lock = tmp_path / "workload.lock"
    lock.touch()
    with Monitor(tmp_path, FAST, ENDLESS, f"--lock={lock}") as monitor:
        monitor.wait_for("cpu", 15)
        assert monitor.process.poll() is None
        monitor.end(by=signal.SIGTERM)


def test_it_ends_after_a_workload_that_was_gone_before_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it goes on until max_seconds, a day, where the controller is gone, too."""
    monkeypatch.setattr("monitors.ending._FREE_S", 0.2)
    lock = tmp_path / "workload.lock"
    ending = Ending(lock, time.monotonic() + 60)
    assert ending.wait(time.monotonic() + 1.2) is None, "no workload has come yet"
    lock.touch()  # and the process that held its lock has been killed
    assert ending.wait(time.monotonic() + 30) == "the workload's lock is free again"
    ending.close()


def test_a_killed_monitor_loses_at_most_the_last_line(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, ENDLESS) as monitor:
        monitor.wait_for("mem", 5)
        code, _ = monitor.end(by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    summary = summarize(tmp_path / "monitor.jsonl")
    assert summary.samples >= 5
    assert not summary.complete
    assert summary.damaged_lines <= 1
    assert len(monitor.lines("cpu_monitor.log")) >= 5


def test_sys_info_describes_host_packages_and_what_the_controller_knows(tmp_path: Path) -> None:
    environment = os.environ | {"CLUSTERDYNO_SYS_IMAGE_ID": "sha256:abc", "PYTORCH_BUILD_VERSION": "2.13"}
    with Monitor(tmp_path, FAST, ENDLESS, environment=environment) as monitor:
        monitor.wait_for("cpu")
        monitor.end(by=signal.SIGTERM)
    info = json.loads((tmp_path / "sys_info.json").read_text())
    assert info["hostname"] == socket.gethostname()
    assert info["kernel"] == os.uname().release
    assert info["cpu"]["threads"] == os.cpu_count()
    assert info["memory_bytes"] > 1 << 30
    assert info["image_id"] == "sha256:abc"
    assert info["image"] == {"PYTORCH_BUILD_VERSION": "2.13"}
    assert info["packages"]["torch"].startswith("2.")
    assert info["accelerator"] == {"unavailable": "vendor cpu has no accelerator"}
    assert info["features"]["apex"] is False
    assert info["fused"] == {}, "no launch of a workload has said anything"
    assert "lo" in info["interfaces"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--interval=0"], "argument --interval: 0 is not between 0.1 and 60 seconds"),
        (["--interval=soon"], "argument --interval: 'soon' is no number of seconds"),
        (["--interval=nan"], "argument --interval: nan is not between"),
        (["--vendor=nvdia"], "did you mean 'nvidia'?"),
        (["--log_dir=/nonexistent"], "--log_dir /nonexistent: no such folder"),
        (["--lok=x"], "unrecognized arguments: --lok=x"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(tmp_path: Path, arguments: list[str], problem: str) -> None:
    with Monitor(tmp_path, ENDLESS, *arguments) as monitor:
        code, output = monitor.end()
    assert code == 2
    assert problem in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_monitor(tmp_path: Path) -> None:
    (tmp_path / "monitor.jsonl").write_text("the records of another\n")
    with Monitor(tmp_path, ENDLESS) as monitor:
        code, output = monitor.end()
    assert code == 2
    assert f"{tmp_path}/monitor.jsonl is there already" in output
    assert (tmp_path / "monitor.jsonl").read_text() == "the records of another\n"


BEADS = """
import os, time
from pathlib import Path
from vendors import AcceleratorSample, ImageParameters, Vendor

HERE = Path(__file__).parent

class Probe:
    def describe(self):
        return {"driver": "0.1", "devices": [{"index": 0, "name": "Abacus", "uuid": "A-0", "memory_bytes": 10}]}

    def sample(self):
        mood = (HERE / "mood").read_text()
        if mood == "broken":
            raise RuntimeError("a bead is stuck")
        if mood == "hanging":
            time.sleep(600)
        return [AcceleratorSample(index=0, utilization_percent=70.0, power_w=5.0)]

    def energy_joules(self):
        return None

    def close(self):
        pass

VENDOR = Vendor(
    name="abacus",
    visible_devices_env="ABACUS_VISIBLE",
    backend="gloo",
    container_options="--device /dev/abacus0",
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2", base_image="abacus:1", python="/opt/b/bin/python"
        )
    },
    open_probe=Probe,
    device_files=("/dev/abacus*",),
    monitor_name="abacus",
)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages with one folder more: vendors/abacus."""
    for package in ("monitors", "vendors", "container"):
        shutil.copytree(REPOSITORY / package, tmp_path / "tree" / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "requirements", tmp_path / "tree" / "requirements")
    template = '{% extends "layers/pytorch.Dockerfile.j2" %}\n'
    new_vendor(tmp_path / "tree", "abacus", BEADS, others=[("pytorch.Dockerfile.j2", template), ("mood", "fine")])
    (tmp_path / "logs").mkdir()
    return tmp_path / "tree"


def test_a_third_vendor_costs_one_folder(tree: Path, tmp_path: Path) -> None:
    with Monitor(tmp_path / "logs", FAST, ENDLESS, vendor="abacus", tree=tree) as monitor:
        monitor.wait_for("accelerator", 3)
        monitor.wait_for("power", 3)
        monitor.end(by=signal.SIGTERM)
    for line in monitor.lines("abacus_monitor.log"):
        assert line.split("\t")[1:] == ["0", "n/a", "5.0", "n/a", "n/a", "70.0"]
    assert monitor.lines("pwr_monitor.log")[0].split("\t")[1:] == ["5.0", "accelerator"]
    summary = summarize(tmp_path / "logs" / "monitor.jsonl")
    assert summary.power["accelerator"].method == "integrated power"
    assert summary.devices[0].utilization_percent.mean == 70.0
    info = json.loads((tmp_path / "logs" / "sys_info.json").read_text())
    assert info["accelerator"]["devices"][0]["name"] == "Abacus"

    code = (
        "import vendors; from container.image import image_spec; v = vendors.load('abacus');"
        "s = image_spec(v, 'pytorch', hashes_of=lambda paths: dict.fromkeys(paths, ''));"
        "print(s.tag); print(s.dockerfile)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("clusterdyno/abacus-pytorch:")
    assert "FROM abacus:1 AS packages" in done.stdout
    assert "--venv=/opt/b" in done.stdout


def test_a_broken_probe_is_reported_once_and_retried(tree: Path, tmp_path: Path) -> None:
    mood = tree / "vendors" / "abacus" / "mood"
    mood.write_text("broken")
    with Monitor(tmp_path / "logs", FAST, ENDLESS, vendor="abacus", tree=tree) as monitor:
        monitor.wait_for("cpu", 5)
        mood.write_text("fine")
        monitor.wait_for("accelerator", 2)
        monitor.end(by=signal.SIGTERM)
    errors = [record["error"] for record in monitor.records() if "error" in record]
    assert errors == ["RuntimeError: a bead is stuck"]
    assert monitor.records()[-1]["summary"]["errors"]["accelerator"] >= 4
    assert monitor.comments("abacus_monitor.log")[1:] == ["# error: RuntimeError: a bead is stuck"]
    assert summarize(tmp_path / "logs" / "monitor.jsonl").errors == {"accelerator": errors}


def test_a_hanging_probe_stops_neither_the_others_nor_the_end(tree: Path, tmp_path: Path) -> None:
    (tree / "vendors" / "abacus" / "mood").write_text("hanging")
    with Monitor(tmp_path / "logs", FAST, ENDLESS, vendor="abacus", tree=tree) as monitor:
        monitor.wait_for("cpu", 10)
        assert monitor.end(by=signal.SIGTERM) == (0, "")
    errors = [record["error"] for record in monitor.records() if "error" in record]
    assert errors == ["Late: no answer within 0.05 s", "Late: the call before has not come back"]
    assert summarize(tmp_path / "logs" / "monitor.jsonl").complete


def test_a_disk_that_takes_no_more_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    with Monitor(tmp_path, FAST, ENDLESS) as monitor:
        monitor.wait_for("cpu")
        resource.prlimit(monitor.process.pid, resource.RLIMIT_FSIZE, (1, 1))
        code, output = monitor.end()
    assert code == 1
    assert "cannot write into" in output
    assert "Traceback" not in output
