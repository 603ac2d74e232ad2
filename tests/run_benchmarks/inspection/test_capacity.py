"""The check refuses a host that is busy, lacks room where something has to go, or memory for a case's sizes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import InputProblems
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.capacity import (
    check_load,
    check_sizes,
    check_strangers,
    look_at_image_folder,
    need_folders,
    note_space,
)
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.findings import HostReport, SpaceNeed
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load
from tests.run_benchmarks.reports import a_report, facts

RUN = "run20261121191924"
GB = 10**9


@pytest.mark.parametrize(
    ("load_of_4", "limit", "severity"),
    [(1.9, None, None), (2.1, None, "warning"), (2.1, 1.0, None), (4.1, 1.0, "failure"), (1.0, 0.2, "failure")],
)
def test_a_host_that_works_already(load_of_4: float, limit: float | None, severity: str | None) -> None:
    report = a_report("node1")
    check_load(report, facts(load=load_of_4, cores=4), limit)
    assert [each.severity for each in report.findings] == ([severity] if severity else [])
    if severity == "failure":
        assert f"at most {limit:g} per core (MAX_LOAD)" in str(report.findings[0])


def test_max_load_is_a_number_above_0(load: Load) -> None:
    for wrong in ("0", "-1", "True", "'x'", "float('inf')"):
        with pytest.raises(InputProblems, match="MAX_LOAD"):
            load(TEST, f"{CLUSTER}MAX_LOAD = {wrong}\n")
    assert load(TEST, f"{CLUSTER}MAX_LOAD = 2\n").cluster.MAX_LOAD == 2.0


@pytest.mark.parametrize("allowed", [False, True])
def test_strangers_on_accelerators_fail_the_check_unless_they_are_allowed(allowed: bool) -> None:
    report = a_report("node1")
    lines = tuple(f"{pid}, /usr/bin/python x.py --token hunter2, 2000 MiB, GPU-0" for pid in range(5))
    check_strangers(report, facts(accelerator_processes=lines), allowed=allowed)
    (finding,) = report.findings
    assert finding.found == "5 at work: 0 python; 1 python; 2 python; and 2 more"
    assert report.failed is not allowed
    check_strangers(report, facts(), allowed=False)
    assert len(report.findings) == 1


@pytest.mark.parametrize(
    ("sizes", "known", "is_barred"),
    [
        ("8..1G x2", {"memory_available": 2 * (1 << 30)}, False),
        ("8..1G x2", {"memory_available": 2 * (1 << 30) - 1}, True),
        ("8..1G x2", {}, False),
    ],
)
def test_sizes_that_cannot_fit_keep_a_host_out_of_their_case(
    sizes: str, known: dict[str, Any], is_barred: bool, load: Load
) -> None:
    prepared = prepare(load(f"{TEST}ONE['overrides'] = {{'sizes': {sizes!r}}}\n"), RUN)
    report = a_report("localhost")
    check_sizes(report, facts(**known), prepared.plan.cases)
    assert list(report.barred) == (["ONE"] if is_barred else []) and not report.failed
    if is_barred:
        assert "2.1 GB at least for size 1G, once for each of 2 ranks" in str(report.findings[0])
        assert "lower the end of sizes of case ONE" in str(report.findings[0])


def test_a_generated_workload_that_cannot_fit_keeps_a_host_out_of_its_case(load: Load) -> None:
    """ZeRO 3 of 2 ranks: a parameter of 64 MiB is gathered from shares of 32."""
    settings = {"frame": "DeepSpeed", "dialect": "aicb", "stage": 3, "hidden_size": 4096, "num_layers": 1}
    case = {"model": "aicb", "framework": "pytorch", "config": "config_zero3", "nproc": 2, "overrides": settings}
    prepared = prepare(load(f"{TEST}ONE.clear()\nONE.update({case!r})\n"), RUN)
    need = prepared.plan.cases[0].memory
    assert need is not None and need.bytes_per_rank > 96 << 20
    for have, is_barred in ((2 * need.bytes_per_rank, False), (2 * need.bytes_per_rank - 1, True)):
        report = a_report("localhost")
        check_sizes(report, facts(memory_available=have), prepared.plan.cases)
        assert list(report.barred) == (["ONE"] if is_barred else []) and not report.failed
    assert "the largest operation's buffers, once for each of 2 ranks" in str(report.findings[0])
    assert "set scale to a smaller fraction, as '1/64' of case ONE" in str(report.findings[0])


def test_the_fullest_device_bounds_the_sizes_of_an_accelerator(load: Load) -> None:
    prepared = prepare(load(f"{TEST}ONE['overrides'] = {{'sizes': '4G'}}\n"), RUN)
    cases = [prepared.plan.cases[0].model_copy(update={"backend": "nccl"})]
    for free, is_barred in (((8 << 30, 5 << 30), False), ((8 << 30, 3 << 30), True), ((8 << 30, 8 << 30, 1), False)):
        report = a_report("localhost")
        check_sizes(report, facts(device_free=free, memory_available=1), cases)
        assert bool(report.barred) is is_barred


def test_each_file_system_is_compared_with_all_that_goes_there(load: Load) -> None:
    settings = load(TEST)
    has, lacks = HostReport(host="has"), HostReport(host="lacks")
    has.images, has.image_sizes = {"img": "sha256:1"}, {"img": 4 * GB}
    lacks.images = {"img": None}
    lacks.docker_root = SpaceNeed(folder="/data/docker", mount="/data", free=int(6.1 * GB), need=0, what="")
    logs = SpaceNeed(folder="/data/logs", mount="/data", free=int(6.1 * GB), need=GB // 2, what="logs")
    code = SpaceNeed(folder="/home/x", mount="/", free=GB, need=GB // 2, what="the code")
    lacks.needs = [logs, code]
    note_space({"has": has, "lacks": lacks}, settings, 24 * GB)
    assert has.findings == []
    (finding,) = lacks.findings
    assert finding.found == "6.10 GB on the file system of /data"
    assert finding.expected == (
        "6.50 GB: 0.50 GB for logs in /data/logs; 6.00 GB for image img (4.0 GB) in /data/docker"
    )
    unknown = HostReport(host="unknown", images={"img": None}, docker_root=lacks.docker_root)
    note_space({"unknown": unknown}, settings, 24 * GB)
    assert "36.00 GB for image img (24.0 GB, estimated) in /data/docker" in unknown.findings[0].expected


def test_the_folder_of_the_images_is_looked_at(tmp_path: Path) -> None:
    report = HostReport(host="localhost")
    look_at_image_folder(report, LocalHost("localhost"), str(tmp_path))
    root = report.docker_root
    assert root is not None and root.folder == str(tmp_path) and Path(root.mount).is_mount()
    assert abs(root.free - shutil.disk_usage(tmp_path).free) < GB
    report.docker_root = None
    look_at_image_folder(report, LocalHost("localhost"), "/no/such/folder")
    assert report.docker_root is None and not report.failed and "/no/such/folder" in report.findings[0].found


def test_code_that_is_there_needs_no_room(load: Load) -> None:
    plan = prepare(load(TEST), RUN).plan
    code, logs = str(Path(plan.code_dir_host).parent), str(Path(plan.log_root_host).parent)
    for digest, needs in ((None, [code, logs]), (plan.code_digest, [logs])):
        report = a_report("localhost")
        need_folders(report, facts(code=digest, free={code: 1, logs: 1}, mounts={code: "/", logs: "/"}), plan)
        assert [each.folder for each in report.needs if each.need] == needs


def test_what_a_real_check_learns_of_load_memory_disks_and_a_drivers_tool(tmp_path: Path, load: Load) -> None:
    """The tool is a script in the place of nvidia-smi: two devices, the second in use by somebody."""
    tool = tmp_path / "tool"
    tool.write_text('[ "$1" = memory ] || exec echo "77, python, 890 MiB"\nprintf "0, 1000, 10\\n1, 1000, 900\\n"\n')
    prepared = prepare(load(f"{TEST}FLAGPERF_PATH_HOST = {str(tmp_path / 'a b')!r}\n"), RUN)
    changed = replace(
        prepared.resolved.vendor, device_memory=f"sh {tool} memory", device_processes=f"sh {tool} processes"
    )
    hosts = {"localhost": LocalHost("localhost")}
    report = check_hosts(hosts, prepared.settings, prepared.plan, changed, prepared.runtime())["localhost"]
    seen = report.facts
    assert seen is not None
    assert seen.load is not None and seen.cores >= 1 and seen.memory_available is not None
    assert seen.device_free == (990 << 20, 100 << 20) and seen.accelerator_processes == ("77, python, 890 MiB",)
    assert report.failed and any("accelerator processes: found 1 at work: 77 python" in str(f) for f in report.findings)
    folder = str(tmp_path / "a b/code")
    assert Path(seen.mounts[folder]).is_mount()
    assert abs(seen.free[folder] - shutil.disk_usage(tmp_path).free) < 1 << 30
    assert {each.what for each in report.needs if each.need} == {"the code", "logs"}


# As nvidia-smi prints it, on stdout, after an update of the driver without a restart.
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    ("tool", "backend", "found", "severity"),
    [
        (f"echo '{MISMATCH}'; echo 'NVML library: 570'; exit 18", "nccl", f"exit code 18: {MISMATCH}", "failure"),
        ("echo '0, 1000, 10'; echo 'GPU 1 is lost'; exit 15", "nccl", "exit code 15: GPU 1 is lost", "warning"),
        ("exit 124", "nccl", "no answer in 8 s", "warning"),
        (f"echo '{MISMATCH}'; exit 18", "gloo", None, None),
        ("exit 127", "nccl", None, None),
    ],
)  # fmt: skip
def test_a_driver_whose_tool_fails_is_a_finding_and_its_words_are_no_processes(
    tool: str, backend: str, found: str | None, severity: str | None, tmp_path: Path, load: Load
) -> None:
    (tmp_path / "tool").write_text(f"{tool}\n")
    prepared = prepare(load(f"{TEST}FLAGPERF_PATH_HOST = {str(tmp_path / 'here')!r}\n"), RUN)
    command = f"sh {tmp_path / 'tool'}"
    vendor = replace(prepared.resolved.vendor, device_memory=command, device_processes=command)
    cases = tuple(case.model_copy(update={"backend": backend}) for case in prepared.plan.cases)
    plan = prepared.plan.model_copy(update={"cases": cases})
    hosts = {"localhost": LocalHost("localhost")}
    report = check_hosts(hosts, prepared.settings, plan, vendor, prepared.runtime())["localhost"]
    assert report.facts is not None and report.facts.accelerator_processes == ()
    assert [(each.found, each.severity) for each in report.findings if each.subject == "driver"] == (
        [(found, severity)] if found else []
    )
    assert len(report.facts.device_free) == tool.count("1000")
