"""A GPU lost in a container: two hosts whose engines give `--gpus all` a scripted driver's devices, ranks over gloo."""

import pytest

from tests.cluster import seed
from tests.cluster.controller import Controller
from tests.vendors.scripted import in_containers

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_a_gpu_that_is_lost_in_a_container_is_named_with_its_host_and_the_others_are_sampled(
    controller: Controller,
) -> None:
    in_containers()
    small = {"sizes": "8..1M x8", "iterations": 50, "backend": "gloo"}
    controller.configure_test(
        {"LOST": {"model": "network", "config": "config_all_reduce_bench", "nproc": 2, "overrides": small}},
        VENDOR="nvidia",
        IMAGE=seed.case_image().tag,
        ACCE_CONTAINER_OPT="-e NVML_SCRIPT=3:lost@4=1",
        MONITOR_INTERVAL=0.2,
    )
    answer = controller.call()
    record = answer.round_record("LOST")
    assert record["verdict"] == "degraded" and len(record["nodes"]) == 2, answer.output
    found = {finding["sentence"]: finding["severity"] for finding in record["findings"]}
    for node in record["nodes"]:
        assert [device["index"] for device in node["monitor"]["devices"]] == list(range(8))
        assert found[f"{node['host']} accelerator 3: lost during the round: NVML: GPU is lost"] == "fault"
    lost = [sentence for sentence in found if "lost during" in sentence]
    assert len(lost) == 2, "each host's other seven were sampled to the end"
