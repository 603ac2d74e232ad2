"""A host's copy of the code that somebody edited: the next run measures with the right one and says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.inspection.code_folder import bring
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.settings import load_settings
from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller, ssh_host

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]
SHORT: dict[str, object] = {"nproc": 1, "overrides": {"sizes": "1M", "iterations": 5}}
UNITS, CACHE = "common/bandwidth.py", "training/__pycache__/extra.cpython-311.pyc"


@pytest.fixture
def controller(tmp_path: Path, testbed: TestBed) -> Iterator[Controller]:
    """run.py of this repository, whose code the test itself brings to the hosts."""
    made = Controller(tmp_path, testbed)
    yield made
    made.end()


def test_code_that_was_edited_on_a_host(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"SHORT": SHORT})
    prepared = prepare(load_settings(controller.cluster_conf, controller.test_conf), "run20261121191924")
    path = prepared.plan.code_dir_host
    for host in testbed.hosts:
        with_ssh = ssh_host(testbed, host)
        with_ssh.connect()
        bring(with_ssh, prepared.code, path, deadline=60)
        with_ssh.close()
    edited, sound = testbed.hosts
    edited.exec(["sed", "-i", "s/^GB = 1e9/GB = 1e6/", f"{path}/{UNITS}"])
    edited.exec(["sh", "-c", f"mkdir -p {path}/training/__pycache__ && echo x > {path}/{CACHE}"])
    assert "GB = 1e6" in edited.exec(["cat", f"{path}/{UNITS}"]).stdout
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    found = [f"changed: {UNITS}", f"added: {CACHE}"]
    said = f"{edited.address}: its code differed from that of this run and was replaced: {', '.join(found)}"
    assert said in (answer.folder / "run.log").read_text()  # type: ignore[operator]
    hosts = {host["name"]: host["code_differences"] for host in answer.run_record()["hosts"]}
    assert hosts == {edited.address: found, sound.address: []}
    record = answer.round_record("SHORT")
    assert record["metrics"]["max_busbw_GBps"] < 1, "100 Mbit/s between the hosts"
    assert [node["code_digest"] for node in record["nodes"]] == [prepared.code.digest] * 2
    for host in testbed.hosts:
        assert "GB = 1e9\n" in host.exec(["cat", f"{path}/{UNITS}"]).stdout
