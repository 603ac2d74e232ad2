"""Data of a run's plan: image, mounts, environment and argv per case, round and node. No I/O.

Some values are known only when a round starts: MASTER_PORT_SLOT, a port that is free on the master (the first at or
above MASTER_PORT); the addresses of hosts that a host cannot resolve itself; the numeric user of a container; whether a
host has InfiniBand devices and RAPL counters to pass in.
"""

from pydantic import BaseModel, ConfigDict, JsonValue

from protocol.case_config import MemoryNeed
from protocol.case_file import CaseFile
from run_benchmarks.settings.container_options import ContainerOptions, Volume
from training.benchmarks.catalog import without_version

MASTER_PORT_SLOT = "{master_port}"
LABEL = "org.clusterdyno"
CASE_MOUNT = "/run/clusterdyno"  # where a container sees its case.json
# Docker hides RAPL's counters from containers; the monitor gets them read-only. The first links into the second.
DATA_CACHE_MOUNT = f"{CASE_MOUNT}/data"  # where it sees the host's hashes of data files
POWERCAP_MOUNTS = tuple(
    Volume(source=path, target=f"/host{path}", read_only=True)
    for path in ("/sys/class/powercap", "/sys/devices/virtual/powercap")
)


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(_Data):
    """One container or process tree on one host."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    labels: dict[str, str]

    def bound_argv(self, master_port: int) -> tuple[str, ...]:
        """The command with the round's master port inserted."""
        return tuple(word.replace(MASTER_PORT_SLOT, str(master_port)) for word in self.argv)


class NodePlan(_Data):
    """The part of one host in one round. Paths: `*_host` as on the host, the others as the task sees them."""

    host: str
    node_rank: int
    ranks: tuple[int, ...]
    image: str | None
    workdir: str
    log_dir_host: str
    case_file_host: str
    mounts: tuple[Volume, ...]
    options: ContainerOptions
    workload: Task
    monitor: Task


class RoundPlan(_Data):
    """One attempt (from 1) at one round: a fresh task on every node. `port_from`: the first master port to try."""

    index: int
    attempt: int
    master: str
    port_from: int
    nodes: tuple[NodePlan, ...]

    @property
    def folder(self) -> str:
        """The name of its folder in the result tree, here and on the hosts."""
        return round_folder(self.index, self.attempt)


class CasePlan(_Data):
    """One case and the first attempts at its rounds. `folder` is its name as a folder of the result tree.

    `launcher` starts its ranks (see the catalogue). `allowed_hosts` are those it may run on, in the order in which it
    takes them; it runs on the first `nnodes`. `memory`: what a rank needs at least, where that is known. `expect`
    has the limits of its metrics by words of a device's name, "" for any.
    `config_origins` says of each value in `config` where it stands, `origins` of values of the case itself.
    `extern`: sha256 of each file of the vendor's own for this model, by its path below vendors/.
    `case_sha256` is that of `case_file`, which its ranks read.
    """

    name: str
    folder: str
    model: str
    framework: str
    launcher: str
    backend: str
    config_file: str
    config: dict[str, JsonValue]
    case_sha256: str
    config_origins: dict[str, str]
    origins: dict[str, str]
    memory: MemoryNeed | None
    expect: dict[str, dict[str, str]]
    nnodes: int
    nproc: int
    allowed_hosts: tuple[str, ...]
    time_limit: float
    stall_limit: float
    retries: int
    predict: bool = False
    data_dir_host: str | None
    requirements: tuple[str, ...]
    extern: dict[str, str] = {}
    rounds: tuple[RoundPlan, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts it runs on, the master first."""
        return self.allowed_hosts[: self.nnodes]

    @property
    def case_file(self) -> CaseFile:
        """The settings that its ranks read."""
        framework = without_version(self.framework)
        return CaseFile(case=self.name, model=self.model, framework=framework, config=self.config)


class Plan(_Data):
    """The whole run. `owner` distinguishes the runs of this result folder from others on the same hosts.

    Runs claim their master ports in .clusterdyno/ports of the user's home on the host, for any result folder and
    FLAGPERF_PATH_HOST; in `ports_dir_host` if that cannot be written. `waves`: the cases in the order in which they
    run; those of one wave run at the same time.
    """

    run_id: str
    owner: str
    runtime: str
    vendor: str
    hosts: tuple[str, ...]
    code_digest: str
    code_dir_host: str
    log_root_host: str
    ports_dir_host: str
    data_cache_host: str
    clear_caches: bool
    waves: tuple[tuple[str, ...], ...] = ()
    cases: tuple[CasePlan, ...]

    @property
    def key(self) -> str:
        """The run's name on the hosts, which other head nodes and users may share."""
        return run_key(self.run_id, self.owner)


def round_folder(index: int, attempt: int) -> str:
    """round1, and for further attempts round1_try2, round1_try3."""
    return f"round{index}" if attempt == 1 else f"round{index}_try{attempt}"


def run_key(run_id: str, owner: str) -> str:
    """Run and owner in one word; the run alone without an owner."""
    return f"{run_id}-{owner}" if owner else run_id
