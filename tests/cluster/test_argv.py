"""A command reaches a container as it was given: over ssh, through Docker's API, and from a shell's hands."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import DockerRuntime
from run_benchmarks.session.preparation import connected, prepare
from run_benchmarks.settings.settings import load_settings
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NASTY = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$(touch /x)",
    "`id`",
    "a\nb",
    "\\",
    "*",
    "~",
    "-x",
    "--",
    "é漢🙂",
    "{master_port}",
    "$HOME",
]


def echoed(host: Host, node: NodePlan, words: list[str], value: str) -> list[str]:
    """What a container sees of its arguments and of a variable's value."""
    argv = ("sh", "-c", 'printf "%s\\0" "$@" "$VALUE"', "sh", *words)
    task = node.workload.model_copy(update={"argv": argv, "environment": {"VALUE": value}})
    plan = node.model_copy(update={"mounts": (), "workdir": "/"})
    container = DockerRuntime(LOG.warning).create(host, plan, task, Bound(master_port=4711))
    container.start()
    assert container.wait(30) == 0
    return container.finish(1.0).split("\0")[:-1]


def test_argv_and_environment_round_trip(tmp_path: Path, testbed: TestBed) -> None:
    controller = Controller(tmp_path, testbed)
    controller.configure_test({"ONE": {"nnodes": 1}}, IMAGE=images.BASE_IMAGE, BASE_IMAGE=None, WHEELHOUSE=None)
    loaded = load_settings(controller.cluster_conf, controller.test_conf)
    node = prepare(loaded, "run20261121191924").plan.cases[0].rounds[0].nodes[0]
    with connected(loaded.cluster) as hosts:
        host = hosts[node.host]
        host.connect()
        nasty = [word.replace("{master_port}", "4711") for word in NASTY]
        assert echoed(host, node, NASTY, 'a\'b "c" $(d)\n') == [*nasty, 'a\'b "c" $(d)\n']

        @settings(max_examples=8, deadline=None, phases=(Phase.generate,), suppress_health_check=[HealthCheck.too_slow])
        @given(words=st.lists(TEXT, max_size=30), value=TEXT)
        def round_trip(words: list[str], value: str) -> None:
            assert echoed(host, node, words, value) == [*words, value]
            assert host.run(["printf", "%s\\0", *words], deadline=20).stdout.split("\0")[:-1] == (words or [""])

        round_trip()
