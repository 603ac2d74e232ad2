"""Defines round.json and run.json, the versioned results of a run; times are epoch ms, durations seconds."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from common.reading import read_bounded
from common.whole_files import write_durably
from protocol.finding import FindingKind, FindingPart, PartFinding
from protocol.outcome import Better
from run_benchmarks.results.comparison import BaselineRecord, ExpectationRecord
from run_benchmarks.results.first_failure import FirstFailure as FirstFailure
from run_benchmarks.results.metrics import Spread
from run_benchmarks.results.partial import PartialRecord
from run_benchmarks.results.remarks import Integrity, Remark, in_lines
from run_benchmarks.results.verdict import Verdict as Verdict
from run_benchmarks.results.verdict import with_remarks
from run_benchmarks.results.verdict import worst as worst
from run_benchmarks.settings.changes import Changes

SCHEMA_VERSION = 3
MAX_RECORD_BYTES = 512 << 20  # above what a round may hold (rank_logs.MAX_STEP_MEMORY)
RECORD_FILE = "round.json"  # in the folder of an attempt at a round
RecordT = TypeVar("RecordT", bound=BaseModel)
EpochMs = Annotated[int, Field(ge=0, lt=253_402_214_400_000)]  # a calendar of any time zone has them: until 9999


def _inside(folder: str) -> str:
    if folder in ("", ".", "..") or "/" in folder or "\0" in folder:
        raise ValueError(f"folder {folder!r} leads out of the run")
    return folder


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CollectedFile(_Record):
    """A file of a host: bytes and sha256; of one that was collected, computed there and here."""

    size: int
    sha256: str


class DataFile(CollectedFile):
    """A file that a training read; of one that FlagPerf publishes an md5 of, this and its own."""

    md5: str | None = None
    published_md5: str | None = None


class NodeRecord(_Record):
    """One host's part of a round: what was started, how it ended, what was collected (by path).

    `missing`: required files that did not arrive, and others that exist only on its host; `incomplete`: not everything
    could be collected; `cut`: logs without their middle. `code_digest`: before and after the round; None if unknown.
    """

    host: str
    node_rank: int
    ranks: list[int]
    exit_code: int | None
    argv: list[str]
    environment: dict[str, str]
    image: str | None
    image_id: str | None
    interface: str | None
    clock_offset_seconds: float
    code_digest: str | None = None
    files: dict[str, CollectedFile]
    missing: list[str]
    incomplete: bool = False
    cut: list[str] = []
    monitor: dict[str, Any] | None


class RoundRecord(_Record):
    """One round of a case. `attempt` counts from 1; a second one was a retry, or made by `resume`.

    `code_digest`, `config_sha256` (of the case's settings as in run.json) and `case_sha256` (of the case.json that its
    ranks read) identify what it ran, `devices` each rank's type of device, once, `data_files` the files that were read,
    `findings` the bad parts of the cluster (DEGRADED), `partial` what metrics and steps are of after an early end.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    case: str
    round: int
    attempt: int = 1
    verdict: Verdict
    reason: str
    first_failure: FirstFailure | None = None
    warnings: list[str] = []
    started_ms: EpochMs
    finished_ms: EpochMs
    phase_seconds: dict[str, float]
    code_digest: str | None = None
    config_sha256: str | None = None
    case_sha256: str | None = None
    master_port: int | None
    world_size: int
    devices: list[str] = []
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]
    data_files: dict[str, DataFile] = {}
    partial: PartialRecord | None = None
    findings: list[PartFinding] = []
    nodes: list[NodeRecord]
    integrity: Integrity | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the infrastructure lost the round: the same workload may pass in another attempt."""
        return self.verdict.is_failure and self.first_failure is not None and self.first_failure.lost

    @property
    def remarks(self) -> list[Remark]:
        """The disturbances of the round."""
        return self.integrity.remarks if self.integrity else []

    @property
    def told_remarks(self) -> list[Remark]:
        """The disturbances of the round in the form for people, a line for each host and kind."""
        return in_lines(self.remarks)

    @property
    def verdict_text(self) -> str:
        """The verdict for people: "pass, with 2 remarks"."""
        return with_remarks(self.verdict, len(self.told_remarks))


class EarlierAttempt(_Record):
    """An attempt at a round that another one followed; `verdict` is None if it left no record.

    `lost`: the infrastructure lost it (RETRY_LOST).
    """

    round: int
    attempt: int
    verdict: Verdict | None
    reason: str
    lost: bool = False

    def __str__(self) -> str:
        how = "lost" if self.lost else self.verdict or "broken off"
        return f"attempt {self.attempt}: {how}: {self.reason}"


class KeyFigure(_Record):
    """The key figure of a case: `value` over its rounds and `of_rounds`, those that passed, all in `unit`.

    `percent_of_expected`: how good it is, 100 being what `expected` names; None where nothing is expected of it.
    `steady`: the value after the warm-up where that differs by more than key_figure.STEADY_DIFFERS.
    """

    metric: str
    unit: str
    better: Better
    value: float
    of_rounds: list[float]
    percent_of_expected: float | None = None
    expected: str = ""
    steady: float | None = None


class PredictedPart(_Record):
    """A part of the iteration, in ms."""

    part: str
    predicted_ms: float
    measured_ms: float


class PredictionRecord(_Record):
    """An iteration in ms as predicted on the devices of the rounds, and 90 % of its possible values; the measured one,
    the median of the rounds that passed, and where a profile measured them its parts.

    `problem`: why nothing was predicted, "" if it was. `sentences`: both beside one another with the part that
    deviates most, and the prediction's own notes.
    """

    problem: str = ""
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    measured_ms: float | None = None
    deviates: str | None = None
    parts: list[PredictedPart] = []
    sentences: list[str] = []


class CaseRecord(_Record):
    """One case: its verdict, its rounds' verdicts, and each metric over the rounds that passed (results.metrics).

    `attempts`: for each round, which attempt counts; `earlier_attempts`: the results of those before. `spread`: of each
    metric that was measured in several rounds and is a mean, maximum or minimum of them. `expectations` and `baseline`:
    its measurements against its `expect` and against BASELINE, if these are set and a round passed. `sentences` and
    `warnings`: its benchmark's statements on the rounds that passed, and what could not be checked. `remarks`: the
    remarks on its rounds, in words. `key`: the figure that stands for it; `joules`: of a round's measured work, the
    mean of the rounds that passed, by power meter. `extern`: sha256 of the vendor's own parts of the model, by file.
    `prediction`: of its iteration, where it asks for one (`predict`).
    """

    name: str
    folder: Annotated[str, AfterValidator(_inside)]
    model: str
    framework: str
    config_file: str
    config: dict[str, Any]
    extern: dict[str, str] = {}
    nnodes: int
    nproc: int
    verdict: Verdict
    reason: str
    rounds: list[Verdict]
    attempts: list[int] = []
    earlier_attempts: list[EarlierAttempt] = []
    metrics: dict[str, Any]
    spread: dict[str, Spread] = {}
    expectations: list[ExpectationRecord] = []
    baseline: BaselineRecord | None = None
    key: KeyFigure | None = None
    joules: dict[str, float] = {}
    sentences: list[str] = []
    warnings: list[str] = []
    remarks: list[str] = []
    prediction: PredictionRecord | None = None

    @property
    def verdict_text(self) -> str:
        """The verdict for people: "pass, with 2 remarks"."""
        return with_remarks(self.verdict, len(self.remarks))


class HostRecord(_Record):
    """A host as the check found it. `code_differences`: how its copy of the code differed before it was replaced.

    `state`: in which the run left it (results.host_state), None in records of before; `state_reason`: why, in words.
    """

    name: str
    address: str
    kernel: str
    hostname: str
    user: str
    docker_version: str | None
    devices: list[str]
    interface: str | None
    clock_offset_seconds: float
    code_differences: list[str] = []
    state: Literal["healthy", "degraded", "lost"] | None = None
    state_reason: str = ""


class ImageRecord(_Record):
    """An image that a run used: its id on each host, and its sources if this run built it.

    `recipe` is the content hash that its tag begins with; `files` has the sha256 of all its inputs, including wheels.
    """

    tag: str
    ids: dict[str, str]
    recipe: str | None
    base_image: str | None
    base_id: str | None
    files: dict[str, str]


class DrainEvidence(_Record):
    """A finding, in the `rounds` of a case, that says to take a host out of service; fields are PartFinding's."""

    case: str
    rounds: list[int]
    part: FindingPart
    hosts: list[str]
    device: str
    kind: FindingKind
    evidence: str
    action: str


class DrainRecord(_Record):
    """A host to take out of service, and the findings that say so: a sentence and its `evidence` for each case and one.

    Records of before had no `evidence`.
    """

    host: str
    reasons: list[str]
    evidence: list[DrainEvidence] = []


class JobRecord(_Record):
    """A job of a scheduler that had the run's hosts. `queue_seconds`: how long it waited for them; None if unknown.

    The run's own times begin after that. `is_ours`: the run asked for it, and cancels it. `case`: its case, "" for all.
    """

    id: str
    hosts: str
    queue_seconds: Annotated[float, Field(ge=0, lt=1e9)] | None = None
    is_ours: bool = True
    case: str = ""


class RunRecord(_Record):
    """The whole run. `left_out`: hosts that failed the check and were left out, and why (MIN_HOSTS).

    `drain`: hosts to take out of service by the findings of the rounds. `fail_on`: the kinds and severities of findings
    that make the run fail. `git_changes`: differences of the code from `git_revision`, which then ends in `-dirty`.
    `changes`: what its command line changed in the two files. `jobs`: those of a scheduler that had its hosts.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    verdict: Verdict
    exit_code: int
    started_ms: EpochMs
    finished_ms: EpochMs
    command: list[str]
    changes: Changes | None = None
    runtime: str
    vendor: str
    code_digest: str
    git_revision: str | None
    git_changes: list[str] = []
    versions: dict[str, str]
    hosts: list[HostRecord]
    jobs: list[JobRecord] = []
    left_out: dict[str, str] = {}
    fail_on: list[str] = []
    drain: list[DrainRecord] = []
    images: list[ImageRecord] = []
    cases: list[CaseRecord]


def read_round(folder: Path) -> RoundRecord | None:
    """The record of the attempt at a round in `folder`; None if there is no valid one."""
    try:
        return load_record(folder / RECORD_FILE, RoundRecord)
    except (OSError, ValidationError):
        return None


def load_record(path: Path, record: type[RecordT]) -> RecordT:
    """The record in a file, which may come from anybody.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than MAX_RECORD_BYTES.
        pydantic.ValidationError: it is no such record.
    """
    return record.model_validate_json(read_bounded(path, MAX_RECORD_BYTES))


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record as JSON atomically."""
    write_text(path, record_text(record))


def record_text(record: BaseModel, *, indent: int | None = 2) -> str:
    """A record as JSON, indented by so many blanks.

    Raises:
        pydantic_core.PydanticSerializationError: the record holds text that no file can hold.
    """
    return record.model_dump_json(indent=indent) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically (mode 0640)."""
    write_durably(path, (text.encode("utf-8", "surrogateescape"),))
