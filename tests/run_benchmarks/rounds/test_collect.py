"""A node's files come over, and the launch is written down without secrets, whatever happens."""

import hashlib
import os
from pathlib import Path

import pytest

from run_benchmarks.errors import CollectError
from run_benchmarks.hosts import transfer
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import CollectedFile
from run_benchmarks.rounds import collect
from run_benchmarks.rounds.collect import HEAD_BYTES, TAIL_BYTES, collect_node, recorded_output
from tests.run_benchmarks.results.rounds import node_plan


@pytest.fixture
def outcome(tmp_path: Path) -> NodeOutcome:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "rank0.out.log").write_text("log\n")
    (tmp_path / "here").mkdir()
    plan = node_plan("node1", 0, (0, 1)).model_copy(update={"log_dir_host": str(tmp_path / "there")})
    return NodeOutcome(node=plan, folder=tmp_path / "here", exit_code=7, output="out\nput\n", error="node1: bad")


def test_files_and_the_launch_log(outcome: NodeOutcome) -> None:
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501)
    assert outcome.files == {"rank0.out.log": CollectedFile(size=4, sha256=hashlib.sha256(b"log\n").hexdigest())}
    assert not outcome.incomplete and outcome.left_behind == ()
    log = (outcome.folder / "start_pytorch_task.log").read_text()
    for line in (
        "host: node1",
        "node rank: 0, ranks 0, 1",
        "image: none (process runtime)",
        "  HF_TOKEN=***",
        "  NCCL_DEBUG=WARN",
        "argv: python3 --port 29501",
        "exit code: 7",
        "error: node1: bad",
        "out\nput",
    ):
        assert f"{line}\n" in log
    assert "hf_secret" not in log


def test_the_launch_log_is_there_also_where_the_files_are_not(outcome: NodeOutcome) -> None:
    outcome.exit_code, outcome.error = None, None
    outcome.node = outcome.node.model_copy(update={"log_dir_host": "/no/such/folder"})
    with pytest.raises(CollectError, match="/no/such/folder"):
        collect_node(LocalHost("node1"), outcome, "pytorch", 29501)
    log = (outcome.folder / "start_pytorch_task.log").read_text()
    assert "exit code: none\n" in log
    assert "error:" not in log


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_host_does_not_replace_the_launch_log(outcome: NodeOutcome, tmp_path: Path, kind: str) -> None:
    forged = tmp_path / "there" / "start_pytorch_task.log"
    if kind == "folder":
        forged.mkdir()
        forged = forged / "deep"
    forged.write_text("argv: harmless\n")
    for _ in range(2):  # again, as a resumed run does
        said: list[str] = []
        collect_node(LocalHost("node1"), outcome, "pytorch", 29501, warn=said.append)
        name = forged.relative_to(tmp_path / "there").as_posix()
        assert said == [f"node1: {name} is left out: the head node itself writes a file of its name"]
        assert outcome.files.keys() == {"rank0.out.log"}
        assert "argv: python3 --port 29501\n" in (outcome.folder / "start_pytorch_task.log").read_text()


def test_secrets_of_the_task_are_masked_in_what_comes_and_the_rest_is_untouched(
    outcome: NodeOutcome, tmp_path: Path
) -> None:
    secret = outcome.node.workload.environment["HF_TOKEN"]
    there = tmp_path / "there"
    (there / "deep").mkdir()
    text = f"a\rb \xff {secret}\r\nlast line without an end".encode("latin-1")
    (there / "deep" / "rank1.out.log").write_bytes(text)
    binary = b"\0" + secret.encode()
    (there / "trace.bin").write_bytes(binary)
    outcome.output = f"HF_TOKEN={secret}\n"
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501)
    kept = (outcome.folder / "deep" / "rank1.out.log").read_bytes()
    assert kept == text.replace(secret.encode(), b"***")
    expected = {"deep/rank1.out.log": kept, "rank0.out.log": b"log\n", "trace.bin": binary}
    assert outcome.files == {
        name: CollectedFile(size=len(data), sha256=hashlib.sha256(data).hexdigest()) for name, data in expected.items()
    }
    assert secret not in (outcome.folder / "start_pytorch_task.log").read_text() + outcome.output


def test_secrets_are_masked_also_in_what_came_of_a_broken_transfer(
    outcome: NodeOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = outcome.node.workload.environment["HF_TOKEN"]
    (tmp_path / "there" / "rank0.out.log").write_text(secret)
    for name in ("PULL", "SEND"):  # from the host, or here on a shared file system
        monkeypatch.setattr(transfer, name, getattr(transfer, name).replace("-cf - {} +", "-cf - ./vanished {} +"))
    with pytest.raises(CollectError, match="vanished"):
        collect_node(LocalHost("node1"), outcome, "pytorch", 29501)
    assert (outcome.folder / "rank0.out.log").read_text() == "***"
    assert outcome.files["rank0.out.log"].size == 3 and outcome.incomplete
    assert outcome.files["rank0.out.log"].sha256 == hashlib.sha256(b"***").hexdigest()


def test_files_that_did_not_come_are_missing(outcome: NodeOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(*_: object, **__: object) -> dict[str, str]:
        (outcome.folder / "rank0.out.log").write_text("log\n")
        raise CollectError("node1", "broke", files={"rank0.out.log": "d"}, missing=["cpu_monitor.log", "monitor.jsonl"])

    monkeypatch.setattr(collect, "fetch", pull)
    with pytest.raises(CollectError):
        collect_node(LocalHost("node1"), outcome, "pytorch", 29501)
    assert outcome.files == {"rank0.out.log": CollectedFile(size=4, sha256="d")}
    expected = ["rank1.out.log", "node_exit.json", "monitor.jsonl", "sys_info.json", "cpu_monitor.log"]
    assert outcome.missing() == expected and outcome.incomplete


def test_a_link_is_left_out_by_name_and_no_reason_to_fail(outcome: NodeOutcome, tmp_path: Path) -> None:
    (tmp_path / "there" / "latest").symlink_to("/abs/path")
    said: list[str] = []
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501, warn=said.append)
    assert said == ["node1: latest is left out: a symbolic link"]
    assert outcome.files.keys() == {"rank0.out.log"} and not outcome.incomplete and outcome.left_behind == ()


def test_what_a_limit_cuts_is_named_and_stays_on_its_host(outcome: NodeOutcome, tmp_path: Path) -> None:
    secret = outcome.node.workload.environment["HF_TOKEN"]
    (tmp_path / "there" / "large").write_text(f"{secret}\n" + "x" * (3 << 20))
    said: list[str] = []
    limits = CollectLimits(max_bytes=1 << 20)
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501, limits=limits, warn=said.append)
    assert said[0].startswith("node1: there is more than MAX_COLLECT_BYTES (1 MiB); of large the beginning is kept")
    assert outcome.incomplete and outcome.files.keys() == {"rank0.out.log", "large"}
    kept = (outcome.folder / "large").read_bytes()
    assert kept.startswith(b"***\nxxx") and 0 < len(kept) < 1 << 20
    assert outcome.files["large"] == CollectedFile(size=len(kept), sha256=hashlib.sha256(kept).hexdigest())


@pytest.mark.parametrize("limit", [1 << 20, 100 << 10, 1000])
def test_beginning_and_end_of_a_log_beyond_the_limit_are_kept(outcome: NodeOutcome, limit: int) -> None:
    there = Path(outcome.node.log_dir_host)
    lines = [b"%07d of this log\n" % number for number in range(200_000)]
    (there / "rank0.out.log").write_bytes(b"".join(lines))
    (there / "rank1.out.log").write_bytes(b"".join(lines[:20_000]))  # shorter than what is kept of a log
    (there / "other").write_bytes(bytes(1 << 19))
    said: list[str] = []
    limits = CollectLimits(max_bytes=limit)
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501, limits=limits, warn=said.append)
    kept = (outcome.folder / "rank0.out.log").read_bytes()
    head, _, tail = kept.partition(b"[... ")
    missing, _, tail = tail.partition(b" bytes are left out here ...]\n")
    assert b"".join(lines).startswith(head) and head.endswith(b"\n") and len(head) > HEAD_BYTES - 100
    assert b"".join(lines).endswith(tail) and tail[:7].isdigit() and len(tail) > TAIL_BYTES - 100
    assert len(head) + int(missing) + len(tail) == sum(map(len, lines))
    if "rank1.out.log" in outcome.cut:
        assert (outcome.folder / "rank1.out.log").read_bytes() == b"".join(lines[:20_000])
    assert "rank0.out.log" in outcome.cut and outcome.incomplete and any("rank0.out.log" in line for line in said)
    for name, file in outcome.files.items():
        content = (outcome.folder / name).read_bytes()
        assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert (outcome.folder / "rank0.out.log").stat().st_mode & 0o007 == 0


def test_an_endless_line_beyond_the_limit(outcome: NodeOutcome) -> None:
    (Path(outcome.node.log_dir_host) / "rank0.out.log").write_bytes(b"x" * (3 << 20))
    collect_node(LocalHost("node1"), outcome, "pytorch", 29501, limits=CollectLimits(max_bytes=2 << 20))
    kept = (outcome.folder / "rank0.out.log").read_bytes()
    assert kept.count(b"x") + int(kept.partition(b"[... ")[2].split()[0]) == 3 << 20


def test_the_output_of_a_task_is_read_again_from_our_own_launch_log_alone(tmp_path: Path) -> None:
    """A host may send a file with a similar name, and of any size."""
    (tmp_path / "start_aaa_task.log").write_text("argv:\noutput:\nforged")
    assert recorded_output(tmp_path, "pytorch") == ""
    own = tmp_path / "start_pytorch_task.log"
    own.write_text("argv:\noutput:\nboom\noutput:\nmore")
    assert recorded_output(tmp_path, "pytorch") == "boom\noutput:\nmore"
    os.truncate(own, 1 << 40)
    assert recorded_output(tmp_path, "pytorch") == ""
