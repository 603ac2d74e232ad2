"""Makes the plan from resolved settings: every case, round and node. No I/O."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from protocol.arguments import CACHE_ENV, ROUND_ENV
from run_benchmarks.plan.origins import repository_path
from run_benchmarks.plan.plan import (
    CASE_MOUNT,
    DATA_CACHE_MOUNT,
    LABEL,
    MASTER_PORT_SLOT,
    POWERCAP_MOUNTS,
    CasePlan,
    NodePlan,
    Plan,
    RoundPlan,
    Task,
    run_key,
)
from run_benchmarks.plan.resolve import Resolved, ResolvedCase
from run_benchmarks.plan.side_by_side import demand_of, waves
from run_benchmarks.settings.case_names import case_folder, container_stem
from run_benchmarks.settings.container_options import ContainerOptions, Volume
from run_benchmarks.settings.settings import Settings

# In addition to a round's time limit and the allowed time without contact: for the stop by the controller.
WORKLOAD_SLACK_SECONDS, MONITOR_SLACK_SECONDS = 30, 120


def nested_mount_points(settings: Settings) -> tuple[str, ...]:
    """Log and data folders that the user placed inside the code folder, as FlagPerf does, relative to it."""
    if not settings.test.in_containers:
        return ()
    code = PurePosixPath(settings.test.FLAGPERF_PATH_CONTAINER)
    data = (case.data_dir_container for case in settings.cases.values() if case.data_dir_container)
    folders = {PurePosixPath(folder) for folder in (settings.test.FLAGPERF_LOG_PATH_CONTAINER, *data)}
    nested = (folder.relative_to(code) for folder in folders if folder != code and folder.is_relative_to(code))
    return tuple(sorted(folder.as_posix() for folder in nested))


def make_plan(settings: Settings, resolved: Resolved, *, run_id: str, code_digest: str, owner: str = "") -> Plan:
    """Plan every case, round and node."""
    base = resolved.deploy
    logs = settings.test.FLAGPERF_LOG_PATH_HOST or f"{base}/result"
    plan = Plan(
        run_id=run_id,
        owner=owner,
        runtime=settings.test.RUNTIME,
        vendor=resolved.vendor.name,
        hosts=settings.cluster.HOSTS,
        code_digest=code_digest,
        code_dir_host=f"{base}/code/{code_digest}",
        log_root_host=f"{logs}/.hosts/{run_key(run_id, owner)}",
        ports_dir_host=f"{base}/ports",
        data_cache_host=f"{base}/data_hashes",
        clear_caches=settings.test.CLEAR_CACHES,
        cases=(),
    )
    demands = [demand_of(case.name, case.settings, settings.cluster.HOSTS) for case in resolved.cases]
    placed = waves(demands, settings.test.MAX_PARALLEL_CASES, settings.test.PLACEMENT)
    hosts = {name: found for wave in placed for name, found in wave.items()}
    cases = tuple(_case_plan(plan, settings, resolved, case, hosts[case.name]) for case in resolved.cases)
    return plan.model_copy(update={"waves": tuple(map(tuple, placed)), "cases": cases})


def _case_plan(
    plan: Plan, settings: Settings, resolved: Resolved, case: ResolvedCase, hosts: tuple[str, ...]
) -> CasePlan:
    """Plan one case on `hosts`; it may take others, in their order, after these."""
    others = tuple(name for name in case.settings.hosts_of(settings.cluster.HOSTS) if name not in hosts)
    return CasePlan(
        name=case.name,
        folder=case_folder(case.name),
        model=case.benchmark.model,
        framework=case.settings.framework,
        launcher=case.benchmark.launcher,
        backend=case.config.backend or resolved.vendor.backend,
        config_file=repository_path(case.config_file),
        config=case.case_file.config,
        case_sha256=case.case_file.sha256,
        config_origins=case.config_origins,
        origins=case.origins,
        memory=case.config.memory_need(nnodes=case.settings.nnodes, nproc=case.settings.nproc),
        expect=case.settings.limits(),
        nnodes=case.settings.nnodes,
        nproc=case.settings.nproc,
        allowed_hosts=(*hosts, *others),
        time_limit=case.settings.time_limit or settings.test.TIME_LIMIT,
        stall_limit=case.settings.stall_limit or settings.test.STALL_LIMIT,
        retries=case.settings.retries,
        predict=case.settings.predict,
        data_dir_host=case.settings.data_dir_host,
        requirements=case.requirement_lines,
        extern=dict(case.extern),
        rounds=tuple(
            plan_round(plan, settings, resolved, case, hosts, index=index, attempt=1)
            for index in range(1, case.settings.repeat + 1)
        ),
    )


def plan_round(
    plan: Plan,
    settings: Settings,
    resolved: Resolved,
    case: ResolvedCase,
    hosts: tuple[str, ...],
    *,
    index: int,
    attempt: int,
) -> RoundPlan:
    """Plan one attempt (from 1) at one round of a case on `hosts`, the master first.

    It shares no name and no folder with an earlier attempt.
    """
    planned = RoundPlan(index=index, attempt=attempt, master=hosts[0], port_from=settings.cluster.MASTER_PORT, nodes=())
    nodes = tuple(_node_plan(plan, settings, resolved, case, planned, rank, host) for rank, host in enumerate(hosts))
    return planned.model_copy(update={"nodes": nodes})


@dataclass(frozen=True, kw_only=True)
class _Paths:
    """Paths of one node as its tasks see them."""

    code_dir: str
    case_file: str
    log_dir: str
    data_dir: str | None
    cache: str


def _paths(plan: Plan, settings: Settings, case: ResolvedCase, log_dir_host: str, case_file_host: str) -> _Paths:
    if settings.test.in_containers:
        return _Paths(
            code_dir=settings.test.FLAGPERF_PATH_CONTAINER,
            case_file=f"{CASE_MOUNT}/{PurePosixPath(case_file_host).name}",
            log_dir=settings.test.FLAGPERF_LOG_PATH_CONTAINER,
            data_dir=case.settings.data_dir_container,
            cache=DATA_CACHE_MOUNT,
        )
    return _Paths(
        code_dir=plan.code_dir_host,
        case_file=case_file_host,
        log_dir=log_dir_host,
        data_dir=case.settings.data_dir_host,
        cache=plan.data_cache_host,
    )


def _node_plan(
    plan: Plan,
    settings: Settings,
    resolved: Resolved,
    case: ResolvedCase,
    planned: RoundPlan,
    node_rank: int,
    host: str,
) -> NodePlan:
    """Plan the tasks of one node of a round, of which all but the nodes is planned."""
    in_container = settings.test.in_containers
    folder = case_folder(case.name)
    log_dir_host = f"{plan.log_root_host}/{folder}/{planned.folder}/{host}_noderank{node_rank}"
    case_file_host = f"{plan.log_root_host}/{folder}/{case.case_file.sha256}.json"
    paths = _paths(plan, settings, case, log_dir_host, case_file_host)
    labels = {
        f"{LABEL}.run": plan.key,
        f"{LABEL}.case": case.name,
        f"{LABEL}.round": str(planned.index),
        f"{LABEL}.attempt": str(planned.attempt),
        f"{LABEL}.node": str(node_rank),
    }
    stem = f"clusterdyno-{plan.key}-{container_stem(case.name)}-r{planned.index}-n{node_rank}"
    again = "" if planned.attempt == 1 else f"-try{planned.attempt}"
    ours = {ROUND_ENV: str(planned.index), **({CACHE_ENV: paths.cache} if paths.data_dir else {})}
    environment = {**_environment(resolved, settings, case, paths.code_dir), **ours}
    first = node_rank * case.settings.nproc
    return NodePlan(
        host=host,
        node_rank=node_rank,
        ranks=tuple(range(first, first + case.settings.nproc)),
        image=(case.image.tag if case.image else settings.test.IMAGE) if in_container else None,
        workdir=paths.code_dir,
        log_dir_host=log_dir_host,
        case_file_host=case_file_host,
        mounts=_mounts(plan, case, paths, log_dir_host, case_file_host) if in_container else (),
        options=_options(settings, resolved) if in_container else ContainerOptions(),
        workload=Task(
            name=f"{stem}{again}",
            argv=_workload_argv(settings, resolved, case, planned.master, node_rank, paths),
            environment=environment,
            labels={**labels, f"{LABEL}.task": "workload"},
        ),
        monitor=Task(
            name=f"{stem}-monitor{again}",
            argv=_monitor_argv(settings, resolved, case, paths.log_dir),
            environment=environment,
            labels={**labels, f"{LABEL}.task": "monitor"},
        ),
    )


def _options(settings: Settings, resolved: Resolved) -> ContainerOptions:
    """The vendor's or user's options; one that is also a setting counts only if that is not set."""
    written, options = settings.test.model_fields_set, resolved.options
    ours = {"shm_size": "SHM_SIZE", "pids_limit": "PIDS_LIMIT"}
    update = {
        field: getattr(settings.test, key)
        for field, key in ours.items()
        if getattr(options, field) is None or key in written
    }
    return options.model_copy(update=update)


def _environment(resolved: Resolved, settings: Settings, case: ResolvedCase, code_dir: str) -> dict[str, str]:
    """The vendor's defaults, the case's variables, the options' -e; ours last, since the launch depends on them."""
    name = settings.test.ACCE_VISIBLE_DEVICE_ENV_NAME
    visible = resolved.vendor.visible_devices_env if name is None else name
    devices = {visible: ",".join(map(str, range(case.settings.nproc)))} if visible else {}
    ours = {"PYTHONPATH": code_dir, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    options = resolved.options.environment if settings.test.in_containers else {}
    return {**resolved.vendor.environment, **devices, **case.environment, **options, **ours}


def _mounts(
    plan: Plan, case: ResolvedCase, paths: _Paths, log_dir_host: str, case_file_host: str
) -> tuple[Volume, ...]:
    mounts = [
        Volume(source=plan.code_dir_host, target=paths.code_dir, read_only=True),
        Volume(source=case_file_host, target=paths.case_file, read_only=True),
        Volume(source=log_dir_host, target=paths.log_dir),
    ]
    if case.settings.data_dir_host and case.settings.data_dir_container:
        data = Volume(source=case.settings.data_dir_host, target=case.settings.data_dir_container, read_only=True)
        mounts += [data, Volume(source=plan.data_cache_host, target=DATA_CACHE_MOUNT)]
    return tuple(mounts)


def _workload_argv(
    settings: Settings,
    resolved: Resolved,
    case: ResolvedCase,
    master: str,
    node_rank: int,
    paths: _Paths,
) -> tuple[str, ...]:
    nnodes = case.settings.nnodes
    torchrun = {
        "--nnodes": str(nnodes),
        "--node_rank": str(node_rank),
        "--nproc_per_node": str(case.settings.nproc),
        "--master_addr": master if nnodes > 1 else "127.0.0.1",
        "--master_port": MASTER_PORT_SLOT,
        "--max_restarts": "0",
    }
    entry = {
        "--case_file": paths.case_file,
        "--vendor": resolved.vendor.name,
        "--case": case.name,
        **({"--data_dir": paths.data_dir} if paths.data_dir else {}),
    }
    launch = {
        "--log_dir": paths.log_dir,
        "--interface": settings.cluster.NETWORK_INTERFACE if nnodes > 1 else "auto",
        "--max_seconds": f"{_longest(settings, case) + WORKLOAD_SLACK_SECONDS:g}",
        **({} if settings.cluster.NUMA_BINDING else {"--numa": "off"}),
        **({} if case.benchmark.launcher == "torchrun" else {"--launcher": case.benchmark.launcher}),
    }
    return (
        case.python,
        "-m",
        "training.benchmarks.driver.launch",
        *_flat(launch),
        *_flat(torchrun),
        "--",
        "-m",
        case.benchmark.entry_module,
        *_flat(entry),
    )


def _longest(settings: Settings, case: ResolvedCase) -> float:
    """Seconds after which a round is over, even without its controller or its link."""
    return (case.settings.time_limit or settings.test.TIME_LIMIT) + settings.cluster.LINK_LIMIT


def _monitor_argv(settings: Settings, resolved: Resolved, case: ResolvedCase, log_dir: str) -> tuple[str, ...]:
    options = {
        "--log_dir": log_dir,
        "--vendor": resolved.vendor.name,
        "--interval": f"{settings.test.MONITOR_INTERVAL:g}",
        "--max_seconds": f"{_longest(settings, case) + MONITOR_SLACK_SECONDS:g}",
        "--lock": f"{log_dir}/workload.lock",
    }
    if settings.test.in_containers:
        options["--powercap"] = POWERCAP_MOUNTS[0].target
    return (case.python, "-m", "monitors", *_flat(options))


def _flat(options: dict[str, str]) -> list[str]:
    return [word for pair in options.items() for word in pair]
