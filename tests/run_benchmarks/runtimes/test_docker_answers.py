"""What a hostile Docker engine answers is an error of its host's task, never the run's end."""

import http.server
import json
import threading
from collections.abc import Iterator

import docker
import pytest

from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.runtimes.docker import DockerRuntime, exit_code
from run_benchmarks.runtimes.docker_inspection import remove_containers, running_of_others
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import Load

ANSWERS = (
    b"[" * 100_000 + b"]" * 100_000,
    b"[]",
    b"null",
    b'{"StatusCode": "x", "State": []}',
    b'{"StatusCode": ' + b"9" * 4000 + b', "State": {"Status": "exited", "ExitCode": ' + b"9" * 4000 + b"}}",
    b'{"State": {"Status": {}, "ExitCode": 1}, "StatusCode": 1e999}',
)


class Engine(http.server.BaseHTTPRequestHandler):
    """Answers every question with `answer`."""

    answer = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def client() -> Iterator[docker.APIClient]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made = docker.APIClient(base_url=f"tcp://127.0.0.1:{server.server_port}", version="1.43")
        try:
            yield made
        finally:
            made.close()
            server.shutdown()
            thread.join()


@pytest.fixture
def node(load: Load) -> NodePlan:
    return prepare(load(), "run20261121191924").plan.cases[0].rounds[0].nodes[0]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[:20].decode())
def test_an_exit_code_that_is_none_is_an_error_of_the_task(
    client: docker.APIClient, node: NodePlan, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "answer", answer)
    host = LocalHost("localhost")
    monkeypatch.setattr(host, "docker", lambda: client)
    task = DockerRuntime(lambda _: None).attach(host, node, node.workload)
    with pytest.raises(TaskError, match=r"waiting for container .*: the engine's answer cannot be read"):
        task.wait(5)


@pytest.mark.parametrize("value", [None, "0", [], 1.0, 2**40, -(2**40)])
def test_what_is_no_exit_code(value: object) -> None:
    with pytest.raises(ValueError, match="is no exit code"):
        exit_code(value)
    assert exit_code(137) == 137


LABELS = {"org.clusterdyno.run": "other"}
LISTS: tuple[object, ...] = ([{"Names": None, "Labels": None, "Id": "1"}], [{"Labels": LABELS}], [None], {"a": 1}, [[]])


@pytest.mark.parametrize("answer", LISTS, ids=str)
def test_a_list_of_containers_that_is_none_is_an_error_of_the_host(
    client: docker.APIClient, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "answer", json.dumps(answer).encode())
    host = LocalHost("localhost")
    monkeypatch.setattr(host, "docker", lambda: client)
    with pytest.raises(TaskError, match="the engine's answer cannot be read"):
        running_of_others(host, "ours")
    if answer != LISTS[0]:
        with pytest.raises(TaskError, match="the engine's answer cannot be read"):
            remove_containers(host, "ours")


def test_a_container_that_the_engine_is_removing_has_no_name(
    client: docker.APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = [{"Id": "4f2a", "Names": None, "Labels": LABELS}, {"Id": "5", "Names": ["/n"], "Labels": LABELS}]
    monkeypatch.setattr(Engine, "answer", json.dumps(going).encode())
    host = LocalHost("localhost")
    monkeypatch.setattr(host, "docker", lambda: client)
    assert running_of_others(host, "ours") == ("container 4f2a of run other", "container n of run other")
