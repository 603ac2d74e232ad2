"""Images that cannot be had and an engine that stops while they are brought: the verdict names image and host."""

from __future__ import annotations

import time

import pytest

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
SHORT: dict[str, object] = {"overrides": {"sizes": "8..1M x8", "iterations": 5}}
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
    controller.configure_test({"SHORT": SHORT}, IMAGE=NOWHERE, BASE_IMAGE=None, WHEELHOUSE=None)
    reason = reason_of(controller.call())
    assert NOWHERE in reason and reason.startswith(f"{testbed.hosts[0].address}: "), reason
    assert controller.containers() == []


def test_a_base_image_that_cannot_be_had(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"SHORT": SHORT}, BASE_IMAGE=NOWHERE)
    reason = reason_of(controller.call())
    assert NOWHERE in reason and reason.startswith(f"{testbed.hosts[0].address}: "), reason
    assert controller.containers() == []


def test_an_engine_that_stops_while_it_gets_an_image(controller: Controller, testbed: TestBed) -> None:
    client = testbed.hosts[0].connect_docker()
    stopped = testbed.hosts[1]
    try:
        client.images.get(images.BASE_IMAGE).tag(*ON_ONE_HOST.split(":"))
        controller.configure_test({"SHORT": SHORT}, IMAGE=ON_ONE_HOST, BASE_IMAGE=None, WHEELHOUSE=None)
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
