"""Acceptances on four real hosts: whoever has a bad disk, CPU or wire is taken out, with proof, and nobody else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.acceptances import FAULTS, SUSPECTED, accepted, accepted_hosts
from tests.cluster.bed import TestBed
from tests.cluster.disturbances import rate
from tests.cluster.faulty_project import project
from tests.cluster.host import ClusterHost
from tests.cluster.images import REPOSITORY
from tests.cluster.pairs import SLOW
from tests.tiers import most, samples

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(7200)]
PRINTED = REPOSITORY / "tests/data/tools"
PERFTEST = REPOSITORY / "tests/training/benchmarks/tools/stand_in_perftest.py"
INSPECTOR = "/tmp/inspector"
PROGRAMS = ("dcgmi", "nvbandwidth", "TransferBench", "ascend-dmi", "hl_qual", "ib_write_bw")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    with accepted_hosts(tmp_path_factory.mktemp("bed")) as bed:
        yield bed


def test_the_host_with_the_slow_wire_is_taken_out_and_the_others_train(bed: TestBed, tmp_path: Path) -> None:
    with rate(bed, bed.hosts[2], SLOW):
        answer, record, file = accepted(tmp_path / "run", bed, "--budget", "8m")
    bad = bed.hosts[2].address
    assert answer.exit_code == 1, answer.output
    assert list(record["drain"]) == [bad]
    assert any(said.startswith("again: ") for said in record["drain"][bad]), "on another occasion, too"
    assert [rung["verdict"] for rung in record["rungs"]] == ["pass", "pass", "fail", "pass"]
    whole = record["rungs"][3]
    assert whole["hosts"] == [host for host in record["hosts"] if host != bad]
    assert len(whole["runs"]) == 2 and whole["soak_seconds"] > 0, "a soak, too"
    assert record["hosts"][bad] == "out" and set(record["hosts"].values()) == {"out", "accepted"}
    assert f"--hosts {bad}," in record["again"][bad] and f"--against {file}" in record["again"][bad]
    (usual,) = record["usual"].values()
    assert {test.partition(" on ")[0] for test in usual} == {  # of a disk with its model, where it has one
        "matmul_fp32", "memory", "host_to_device", "training", "disk_write", "disk_read",
    }  # fmt: skip
    page = file.with_name("accept.html").read_text()
    assert page.index(bad) < page.index("Rungs") and "(estimate)" in page
    assert all(rung["estimated_seconds"] for rung in record["rungs"])
    assert record["commands"][0].startswith(f"scontrol update nodename={bad} state=drain ")


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_host_is_found_each_time(name: str, bed: TestBed, tmp_path: Path) -> None:
    fault = FAULTS[name]
    found: list[list[str]] = []
    truth: list[list[str]] = []
    for number in samples(1, 10):
        victim = bed.hosts[number % 4]
        with fault.begin(bed, victim):
            _, record, _ = accepted(tmp_path / f"run{number}", bed, "--rungs", fault.rung, "--budget", "15m")
        truth.append([victim.address])
        found.append(list(record["drain"]))
        assert any(fault.evidence in said for said in record["drain"].get(victim.address, [""])), record["drain"]
    assert found == truth


def test_healthy_hosts_are_never_taken_out_and_accepted_but_where_one_is_suspected_once(
    bed: TestBed, tmp_path: Path
) -> None:
    records = []
    for number in samples(1, 20):
        answer, record, _ = accepted(tmp_path / f"run{number}", bed, "--rungs", "single,network", "--budget", "15m")
        is_accepted = set(record["hosts"].values()) == {"accepted"}
        assert (answer.exit_code == 0) == record["ready"] == is_accepted, record["hosts"]
        records.append(record)
    assert [record["drain"] for record in records] == [{}] * len(records)
    assert [rung for record in records for rung in record["rungs"] if rung["verdict"] != "pass"] == []
    assert sum(not record["ready"] for record in records) <= most(len(records), SUSPECTED)


def with_tools(folder: Path) -> Path:
    """A project whose hosts without accelerators have the tools of others of all vendors."""
    root = project(folder)
    configs = root / "vendors/cpu/tools-pytorch/config"
    configs.mkdir(parents=True, exist_ok=True)
    names = ["dcgmi", "nvbandwidth", "rvs", "TransferBench", "ascend-dmi", "hl_qual"]
    (configs / "config_quick.py").write_text('tools = ["dcgmi"]\narguments = {"dcgmi": "diag -r 1 -j"}\n')
    (configs / "config_host.py").write_text(f'tools = {names}\narguments = {{"hl_qual": "-gaudi2"}}\n')
    (configs / "config_pairs.py").write_text('tools = ["ib_write_bw", "ib_write_bw_ring"]\ndevices = ["mlx5_0"]\n')
    variables = root / "vendors/cpu/network-pytorch/config/environment_variables.env"
    variables.write_text(f"NCCL_INSPECTOR_DUMP_DIR={INSPECTOR}\n")
    return root


@contextmanager
def installed(bed: TestBed, victim: ClusterHost, other: ClusterHost) -> Iterator[None]:
    """Tools on every host that print what is recorded of them: dcgmi of the victim a broken memory, nvbandwidth and
    perftest of the other little, ascend-dmi of all nonsense; rvs is on none. The victim comes late to collectives.
    """
    line = (PRINTED / "inspector.jsonl").read_text().splitlines()[1]
    for host in bed.hosts:
        texts = {
            "dcgmi": (PRINTED / "dcgmi4.json").read_text(),
            "nvbandwidth": (PRINTED / "nvbandwidth.txt").read_text(),
            "TransferBench": (PRINTED / "transferbench.txt").read_text(),
            "ascend-dmi": "Segmentation fault\n",
            "hl_qual": (PRINTED / "hl_qual.txt").read_text().replace("FAILED", "PASSED"),
        }
        if host is not victim:
            texts["dcgmi"] = texts["dcgmi"].replace('"Fail"', '"Pass"')
        if host is not other:
            texts["nvbandwidth"] = texts["nvbandwidth"].replace("31.07", "55.60")
        for name, text in texts.items():
            write(host, f"/usr/local/bin/{name}", f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        write(host, "/usr/local/bin/ib_write_bw", f'#!/bin/sh\nexec {sys.executable} {PERFTEST} "$@"\n')
        if host is other:
            write(host, "/tmp/slow_hca", "")
        took = 900.0 if host is victim else 5663.0
        own = line.replace("nanogpt-nccl-test-worker-0", host.name).replace("5663.0", str(took))
        write(host, f"{INSPECTOR}/rank.log", f"{own}\n")
        host.exec(["touch", "-d", "+2 hours", f"{INSPECTOR}/rank.log"])  # files of earlier runs are passed over
    yield
    for host in bed.hosts:
        host.exec(["sh", "-c", f"cd /usr/local/bin && rm -rf {INSPECTOR} /tmp/slow_hca {' '.join(PROGRAMS)}"])


def write(host: ClusterHost, path: str, text: str) -> None:
    host.exec(["sh", "-c", f'mkdir -p "$(dirname {path})"; cat > {path}; chmod +x {path}'], text_input=text)


def test_the_verdicts_of_installed_tools_join_the_rungs_and_what_is_missing_or_unreadable_passes_nothing(
    bed: TestBed, tmp_path: Path
) -> None:
    victim, other = bed.hosts[1], bed.hosts[2]
    root = with_tools(tmp_path / "project")
    with installed(bed, victim, other):
        _, quick, _ = accepted(tmp_path / "health", bed, "--rungs", "health", "--budget", "15m", root=root)
        _, record, _ = accepted(tmp_path / "single", bed, "--rungs", "single", "--budget", "15m", root=root)
        answer, network, _ = accepted(tmp_path / "network", bed, "--rungs", "network", "--budget", "15m", root=root)
    (health,), (single,) = quick["rungs"], record["rungs"]
    assert [*quick["drain"]] == [victim.address] and health["tools"] == ["dcgmi diag -r 1 -j"]
    first, again = quick["drain"][victim.address]
    assert "dcgmi: GPU 5: " in first and again.startswith("again: ")
    assert set(record["drain"]) == {victim.address, other.address}
    for host, said in ((victim, "dcgmi: GPU 5: "), (other, "nvbandwidth host_to_device_memcpy_ce GPU 6 31.07 GB/s")):
        _, again = (each for each in record["drain"][host.address] if said in each)
        assert again.startswith("again: "), "on another occasion, too"
    assert single["verdict"] == "fail" and single["reasons"] == ["ascend-dmi gave no result on 4 of 4 hosts"]
    assert "rvs is not installed on any host" in single["not_run"]
    assert any(said.startswith("ascend-dmi: printed no result: Segmentation fault") for said in single["not_run"])
    assert any(test.startswith("TransferBench ") for test in next(iter(record["usual"].values()))), (
        "expected of the accepted ones"
    )
    assert answer.exit_code == 1
    assert set(network["drain"]) == {victim.address, other.address}
    (late,) = (
        said for said in network["drain"][victim.address] if "inspector AllReduce" in said and said[:5] != "again"
    )
    assert "the others wait for it in this collective" in late
    for tool in ("ib_write_bw", "ib_write_bw_ring"):
        assert any(f"{tool} mlx5_0" in said for said in network["drain"][other.address])
