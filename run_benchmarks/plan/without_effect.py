"""Names the settings that a user wrote and that nothing reads; a set value is never silently ignored."""

from itertools import chain

from run_benchmarks.plan.side_by_side import demand_of, waves
from run_benchmarks.settings.launcher_names import LAUNCHERS
from run_benchmarks.settings.settings import Settings

CONTAINERS_ONLY = (
    "ACCE_CONTAINER_OPT", "PIP_SOURCE", "PIP_TRUSTED_HOST", "FLAGPERF_PATH_CONTAINER", "FLAGPERF_LOG_PATH_CONTAINER",
    "SHM_SIZE", "PIDS_LIMIT", "BASE_IMAGE", "WHEELHOUSE", "IMAGE", "IMAGE_OPTIONS",
)  # fmt: skip
BUILD_ONLY = ("BASE_IMAGE", "WHEELHOUSE", "PIP_SOURCE", "PIP_TRUSTED_HOST", "IMAGE_OPTIONS")
REMOTE_ONLY = ("SSH_PORT", "SSH_USER", "SSH_KEY", "KNOWN_HOSTS")


def without_effect(settings: Settings) -> list[str]:
    """Settings that the user wrote and that nothing reads; a set value is never silently ignored."""
    written, touched = settings.test.model_fields_set, settings.cluster.model_fields_set
    warnings = []
    if not settings.test.in_containers:
        used = f"has no effect with RUNTIME {settings.test.RUNTIME!r}"
        warnings += [f"{key} {used}" for key in CONTAINERS_ONLY if key in written]
    else:
        warnings += _container_warnings(settings)
    if not settings.cluster.ssh_hosts:
        reached = "Slurm's nodes are" if settings.cluster.needs_allocation else "localhost is"
        warnings += [f"{key} has no effect: {reached} reached without ssh" for key in REMOTE_ONLY if key in touched]
    warnings += _of_other_launchers(settings)
    if "NETWORK_INTERFACE" in touched and all(case.nnodes == 1 for case in settings.cases.values()):
        warnings.append("NETWORK_INTERFACE has no effect: no case runs on more than one host")
    warnings += _of_parallel_cases(settings)
    finished = not settings.test.in_containers or settings.test.IMAGE is not None
    for name, case in settings.cases.items():
        if finished and "_" in case.framework:
            warnings.append(f"{name}.framework: the version in {case.framework!r} has no effect without an own image")
    return warnings


def _of_parallel_cases(settings: Settings) -> list[str]:
    demands = [demand_of(name, case, settings.cluster.HOSTS) for name, case in settings.cases.items()]
    most = settings.test.MAX_PARALLEL_CASES
    if most <= 1 or any(len(wave) > 1 for wave in waves(demands, most, settings.test.PLACEMENT)):
        return []
    room = f"no two cases have room beside each other on {len(settings.cluster.HOSTS)} hosts"
    return [f"MAX_PARALLEL_CASES has no effect: {room}"]


def _of_other_launchers(settings: Settings) -> list[str]:
    launcher, touched = settings.cluster.LAUNCHER, settings.cluster.model_fields_set
    others = tuple(chain.from_iterable(entry.prefixes for name, entry in LAUNCHERS.items() if name != launcher))
    keys = [key for key in sorted(touched) if key.startswith(others) and key not in REMOTE_ONLY]
    return [f"{key} has no effect with LAUNCHER {launcher!r}" for key in keys]


def _container_warnings(settings: Settings) -> list[str]:
    written, options = settings.test.model_fields_set, settings.test.ACCE_CONTAINER_OPT
    warnings = []
    if settings.test.IMAGE is not None:
        warnings += [f"{key} has no effect: IMAGE names a finished image" for key in BUILD_ONLY if key in written]
    elif (trusted := settings.test.PIP_TRUSTED_HOST) is not None:
        warnings.append(f"PIP_TRUSTED_HOST: packages come from {trusted} without proof that it is that host")
    if options is None:
        return warnings
    if options.shm_size is not None and "SHM_SIZE" in written:
        warnings.append("--shm-size of ACCE_CONTAINER_OPT has no effect: SHM_SIZE is set")
    if options.pids_limit is not None and "PIDS_LIMIT" in written:
        warnings.append("--pids-limit of ACCE_CONTAINER_OPT has no effect: PIDS_LIMIT is set")
    if options.ipc is not None and (options.shm_size is not None or "SHM_SIZE" in written):
        warnings.append(f"the shared memory size has no effect with --ipc {options.ipc} of ACCE_CONTAINER_OPT")
    if options.privileged:
        warnings.append(
            "ACCE_CONTAINER_OPT asks for --privileged: containers are root on the hosts (docs/explanation/security.md)"
        )
    return warnings
