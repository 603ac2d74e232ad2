"""Lists the hardware and software that a case ran on: code, settings, image, hosts, kernel, driver, packages."""

from collections.abc import Iterator

from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.monitor_readings import read_sys_info
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.seal import node_folder
from vendors import working

PACKAGES = ("torch", *(name for vendor in working() for name in vendor.packages))


def provenance(run: LoadedRun, case: CaseRecord) -> dict[str, str]:
    """The hardware and software that the rounds that passed ran on, by name, in words; several joined by commas."""
    record, rounds = run.record, run.passed(case)
    nodes = [node for each in rounds for node in each.nodes]
    names = {node.host for node in nodes}
    found = {
        "code": [record.code_digest],
        "config": [each.config_sha256 or "" for each in rounds],
        "image": [node.image_id or node.image or "none" for node in nodes],
        "hosts": list(names),
        "kernel": [host.kernel for host in record.hosts if host.name in names],
        "runtime": [record.runtime],
    }
    for name, value in _of_the_hosts(run, case):
        found.setdefault(name, []).append(value)
    return {name: ", ".join(sorted(set(values))) for name, values in found.items()}


def _of_the_hosts(run: LoadedRun, case: CaseRecord) -> Iterator[tuple[str, str]]:
    """Driver and packages that the hosts of the first round reported, whatever they sent."""
    first = next(iter(run.passed(case)), None)
    if first is None:
        return
    folder = run.folder / case.folder / round_folder(first.round, first.attempt)
    for node in first.nodes:
        info = read_sys_info(folder / node_folder(node.host, node.node_rank))
        accelerator, packages = info.get("accelerator"), info.get("packages")
        driver = accelerator.get("driver") if isinstance(accelerator, dict) else None
        if isinstance(driver, str):
            yield "driver", driver
        if isinstance(packages, dict):
            yield from ((name, str(packages[name])) for name in PACKAGES if name in packages)
