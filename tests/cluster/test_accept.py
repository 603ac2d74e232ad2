"""An acceptance on four real hosts, one of which has a slow wire: it is taken out, with proof, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.controller import PROCESS, Controller
from tests.cluster.pairs import SLOW, four_healthy_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(1200)]


def test_the_host_with_the_slow_wire_is_taken_out_and_the_others_train(tmp_path: Path) -> None:
    with four_healthy_hosts(tmp_path / "bed") as bed:
        bed.hosts[2].impair(rate=SLOW)
        controller = Controller(tmp_path, bed)
        controller.configure_test({"MINE": {"nnodes": 4, "nproc": 1}}, **PROCESS)
        answer = controller.finish(controller.start("accept", "--nproc", "1", "--budget", "20m"), within=1200)
        bad = bed.hosts[2].address
    (file,) = controller.logs.glob("accept*/accept.json")
    record = json.loads(file.read_text())
    assert answer.exit_code == 1, answer.output
    assert list(record["drain"]) == [bad]
    assert any(said.startswith("again: ") for said in record["drain"][bad]), "on another occasion, too"
    assert [rung["verdict"] for rung in record["rungs"]] == ["pass", "pass", "fail", "pass"]
    assert record["rungs"][3]["hosts"] == [host for host in record["hosts"] if host != bad]
    assert record["hosts"][bad] == "out" and set(record["hosts"].values()) == {"out", "accepted"}
    assert f"--hosts {bad}," in record["again"][bad] and f"--against {file}" in record["again"][bad]
    assert record["usual"].keys() == {"matmul_fp32", "memory", "host_to_device", "training"}
    assert file.with_name("accept.html").read_text().index(bad) < file.with_name("accept.html").read_text().index(
        "Rungs"
    )
    assert record["commands"][0].startswith(f"scontrol update nodename={bad} state=drain ")
