"""A host is lost between two cases with containers: the next case runs on a spare one, which gets what it lacks."""

from collections.abc import Iterator

import pytest

from tests.cluster import seed
from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller, in_training, wait_until
from tests.cluster.faulty_project import LIGHT
from tests.cluster.faulty_project import LONG as ENDLESS

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

ONE: dict[str, object] = {"nnodes": 1, "nproc": 1}
LONG: dict[str, object] = {**ENDLESS, **ONE}
SHORT: dict[str, object] = {**LIGHT, **ONE}
LINK_LIMIT = 5.0


@pytest.fixture
def controller(controller: Controller, testbed: TestBed) -> Iterator[Controller]:
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    with seed.forgotten(testbed.hosts[1:]):
        yield controller


def test_a_spare_host_takes_over_what_a_lost_one_would_have_run(controller: Controller, testbed: TestBed) -> None:
    lost, spare = testbed.hosts
    controller.configure_test({"LONG": LONG, "NAMED": {**SHORT, "hosts": [lost.address]}, "NEXT": SHORT})
    process = controller.start()
    wait_until("work of rank 0", lambda: in_training(0))
    lost.kill()
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    cases = {case["name"]: case for case in answer.run_record()["cases"]}
    assert {name: case["verdict"] for name, case in cases.items()} == {
        **{"LONG": "fail", "NAMED": "skipped"},
        "NEXT": "pass",
    }, answer.output
    assert "out of reach" in cases["LONG"]["reason"]
    assert cases["NAMED"]["reason"].startswith("it needs 1 hosts and 0 of its 1 are left") and lost.address in str(
        cases
    )
    (before,), (after,) = answer.round_record("LONG")["nodes"], answer.round_record("NEXT")["nodes"]
    assert before["host"] == lost.address and before["incomplete"] and before["missing"]
    assert after["host"] == spare.address and after["image"] == before["image"] and after["image_id"]
    assert after["missing"] == [] and not after["incomplete"]
    assert f"The hosts for the next round: {spare.address}" in answer.output
    assert f"is on no host: building it on {spare.address}" in answer.output
    client = spare.connect_docker()
    try:
        assert client.containers.list(all=True, filters={"label": "org.clusterdyno.run"}, ignore_removed=True) == []
    finally:
        client.close()
