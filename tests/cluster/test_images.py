"""Images that cannot be had and an engine that stops while they are brought: the verdict names image and host."""

import time

import pytest

from tests.cluster import images, seed
from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller, wait_until
from tests.cluster.faulty_project import LIGHT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
# .invalid has no addresses (RFC 2606), so that no registry anywhere is asked.
NOWHERE = "registry.invalid/team/no-such-image:1"
ON_ONE_HOST = "clusterdyno-test/on-one-host:2"


def reason_of(answer: Answer) -> str:
    """Why no round was run; the same in run.json, on the screen and in the report."""
    assert answer.exit_code == 1 and answer.folder is not None, answer.output
    (case,) = answer.run_record()["cases"]
    assert case["verdict"] == "skipped" and case["rounds"] == []
    reason = str(case["reason"])
    assert reason.splitlines()[0] in answer.output
    assert "Traceback" not in answer.output
    assert reason.split(":")[0] in (answer.folder / "report.html").read_text()
    return reason


def test_an_image_that_nobody_has_and_no_registry_gives(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"SHORT": LIGHT}, IMAGE=NOWHERE, BASE_IMAGE=None, WHEELHOUSE=None)
    reason = reason_of(controller.call())
    assert NOWHERE in reason and reason.startswith(f"{testbed.hosts[0].address}: "), reason
    assert controller.containers() == []


def test_a_base_image_that_cannot_be_had(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"SHORT": LIGHT}, BASE_IMAGE=NOWHERE)
    reason = reason_of(controller.call())
    assert NOWHERE in reason and reason.startswith(f"{testbed.hosts[0].address}: "), reason
    assert controller.containers() == []


@pytest.mark.nightly
def test_an_engine_that_stops_while_it_gets_an_image(controller: Controller, testbed: TestBed) -> None:
    client = testbed.hosts[0].connect_docker()
    stopped = testbed.hosts[1]
    try:
        client.images.get(images.BASE_IMAGE).tag(*ON_ONE_HOST.split(":"))
        controller.configure_test({"SHORT": LIGHT}, IMAGE=ON_ONE_HOST, BASE_IMAGE=None, WHEELHOUSE=None)
        process = controller.start()
        log = controller.logs

        def transfer_began() -> bool:
            return any(f"Bringing image {ON_ONE_HOST}" in file.read_text() for file in log.glob("run*/run.log"))

        wait_until("the transfer", transfer_began, 60.0)
        stopped.stop_engine(kill=True)
        began = time.monotonic()
        reason = reason_of(controller.finish(process))
        print(f"verdict {time.monotonic() - began:.1f} s after the engine's end")
        assert ON_ONE_HOST in reason and reason.startswith(f"{stopped.address}: "), reason
    finally:
        stopped.start_engine()
        client.images.remove(ON_ONE_HOST)
        client.close()


@pytest.mark.nightly
def test_hosts_that_have_different_images_under_one_name(controller: Controller, testbed: TestBed) -> None:
    """Ours is replaced by the one of the recipe, and containers come from its id; a user's own is refused."""
    tag = seed.case_image().tag
    right, wrong = (host.connect_docker(timeout=300) for host in testbed.hosts)
    try:
        image_id = right.images.get(tag).id
        wrong.images.get(tag).tag(*seed.KEPT.split(":"))
        wrong.images.get(images.BASE_IMAGE).tag(*tag.split(":"))
        controller.configure_test({"SHORT": LIGHT})
        answer = controller.call()
        assert answer.exit_code == 0, answer.output
        address = testbed.hosts[1].address
        assert f"{address}: image {tag}: " in answer.output and "was not made by its recipe" in answer.output
        assert {node["image_id"] for node in answer.round_record("SHORT")["nodes"]} == {image_id}
        (record,) = answer.run_record()["images"]
        assert record["tag"] == tag and set(record["ids"].values()) == {image_id}
        assert record["recipe"] == seed.case_image().content_hash
        wheels = {name: digest for name, digest in record["files"].items() if name.endswith(".whl")}
        assert len(wheels) > 10 and all(len(digest) == 64 for digest in wheels.values())
        for client, source in ((right, tag), (wrong, images.BASE_IMAGE)):
            client.images.get(source).tag(*ON_ONE_HOST.split(":"))
        controller.configure_test({"SHORT": LIGHT}, IMAGE=ON_ONE_HOST, BASE_IMAGE=None, WHEELHOUSE=None)
        reason = reason_of(controller.call())
        assert reason.startswith(f"{address}: image {ON_ONE_HOST} is sha256:") and "remove the wrong one" in reason
    finally:
        wrong.images.get(seed.KEPT).tag(*tag.split(":"))
        for client, name in ((right, ON_ONE_HOST), (wrong, ON_ONE_HOST), (wrong, seed.KEPT)):
            if client.images.list(name):
                client.images.remove(name)
        right.close()
        wrong.close()
