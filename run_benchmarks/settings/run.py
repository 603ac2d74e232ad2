"""Defines the settings of test_conf.py except its cases: vendor, runtime, cases, and folders on the hosts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from protocol import baseline_file
from run_benchmarks.settings.runtime_names import RUNTIMES, RuntimeName
from run_benchmarks.settings.value_types import (
    Count,
    Database,
    FindingNames,
    HostFolder,
    ImageName,
    Number,
    Options,
    OutputSize,
    Percent,
    Placement,
    Retries,
    SampleSeconds,
    Seconds,
    Size,
    VariableName,
    WebAddress,
)

CASES_WORDS = "a list of case names, or a dict of case keys with their data paths"


class TestConf(BaseModel, frozen=True, extra="forbid"):
    """The settings of test_conf.py, with the descriptions of `run.py list` and the documentation."""

    __test__ = False  # not a test class, despite its name

    VENDOR: str = Field(description="a folder of vendors/: which accelerators the hosts have")
    CASES: Annotated[tuple[str, ...], WithJsonSchema({"words": CASES_WORDS})] = Field(
        min_length=1, description="what to run"
    )
    RUNTIME: RuntimeName = Field(
        "docker", description="a fresh container on each host and round, or processes under the host's own Python"
    )
    TEST_TYPE: Literal["default"] = Field("default", description="a key of FlagPerf; this is its only value")
    ACCE_CONTAINER_OPT: Options | None = Field(
        None, description="options of the containers in addition to the vendor's, which they override"
    )
    ACCE_VISIBLE_DEVICE_ENV_NAME: VariableName | None = Field(
        None, description="the variable that names the devices of a node; none: the vendor's"
    )
    PIP_SOURCE: WebAddress | None = Field(None, description="the package index for image builds; none: pip's own")
    PIP_TRUSTED_HOST: str | None = Field(
        None,
        min_length=1,
        description="host[:port] of PIP_SOURCE, to accept it unencrypted or with an unknown certificate",
    )
    FLAGPERF_PATH_HOST: HostFolder | None = Field(
        None, description="where our files live on the hosts; none: .clusterdyno in the user's home"
    )
    FLAGPERF_PATH_CONTAINER: HostFolder = Field(
        "/workspace/clusterdyno", description="where a container sees our files"
    )
    FLAGPERF_LOG_PATH_HOST: HostFolder | None = Field(
        None,
        description="logs on the hosts and results on the head node; none: result/ of our folder and of the repository",
    )
    FLAGPERF_LOG_PATH_CONTAINER: HostFolder = Field(
        "/workspace/result", description="where a container writes its logs"
    )
    FLAGPERF_LOG_LEVEL: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="what the console shows; run.log has everything"
    )
    SHM_SIZE: Size = Field(8 << 30, description="shared memory of a container")
    PIDS_LIMIT: Number = Field(32768, description="processes and threads of one container")
    MAX_COLLECT_BYTES: Size = Field(
        16 << 30,
        description="size of one node's files that are collected per round, for as long as 1 MiB/s comes of them",
    )
    MAX_COLLECT_FILES: Number = Field(20_000, description="number of one node's files that are collected per round")
    MAX_OUTPUT_BYTES: OutputSize = Field(1 << 20, description="how much of a task's own output is kept")
    CLEAR_CACHES: bool = Field(
        False, description="whether to drop the hosts' page cache before each round (needs root)"
    )
    BASE_IMAGE: ImageName | None = Field(None, description="the image that ours is built on; none: the vendor's")
    WHEELHOUSE: Path | None = Field(
        None, description="a folder made by `pip download`, for image builds without a package index"
    )
    IMAGE: ImageName | None = Field(None, description="a finished image, used instead of building one")
    IMAGE_OPTIONS: dict[str, str] = Field(
        {}, description="values for the vendor's image template, which override its own"
    )
    PYTHON: str | None = Field(
        None, description="the interpreter on the hosts; none: the image's, python3 without containers"
    )
    MONITOR_INTERVAL: SampleSeconds = Field(1.0, description="seconds between two samples of the monitors")
    TIME_LIMIT: Seconds = Field(86400.0, description="seconds a round may take")
    STALL_LIMIT: Seconds = Field(1800.0, description="seconds a rank may go without progress")
    RUN_TIME_LIMIT: Seconds | None = Field(None, description="seconds a whole run may take, from its first start")
    MAX_PARALLEL_CASES: Count = Field(
        1, description="how many cases run at the same time, each on hosts of its own; planned by their sizes"
    )
    PLACEMENT: Placement = Field(
        "contiguous", description="which hosts a case gets: neighbours in HOSTS, or at equal distances over HOSTS"
    )
    RETRY_LOST: Retries = Field(
        0, description="how often a round that the infrastructure broke is run again, beside a case's `retries`"
    )
    BASELINE: Path | None = Field(None, description="a file of --save-baseline: what a good run measured")
    BASELINE_PERCENT: Percent = Field(10.0, description="percent by which a measurement may be worse than BASELINE")

    SEAL_KEY: Path | None = Field(None, description="a private SSH key that signs each run's seal")
    HISTORY: Database | None = Field(
        None, description="where `history` keeps every run; none: history.sqlite in the result folder"
    )
    FAIL_ON: FindingNames = Field(
        ("fault",), description="severities and kinds of findings that make a degraded run exit with 1; (): none"
    )

    @property
    def in_containers(self) -> bool:
        """Whether RUNTIME runs tasks in containers of an image."""
        return RUNTIMES[self.RUNTIME].in_containers

    @field_validator("FLAGPERF_LOG_LEVEL", mode="before")
    @classmethod
    def _lower(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level

    @field_validator("WHEELHOUSE")
    @classmethod
    def _wheelhouse(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        path = path.expanduser()
        if not path.is_dir() or not any(path.glob("*.whl")):
            raise ValueError(f"a folder with wheels (pip download -d {path} -r requirements/workload.txt)")
        return path

    @field_validator("BASELINE")
    @classmethod
    def _baseline(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                baseline_file.load(path.expanduser())
            except baseline_file.BaselineError as error:
                raise ValueError(f"a file of `run.py --save-baseline`: {error}") from error
        return path and path.expanduser()

    @field_validator("SEAL_KEY")
    @classmethod
    def _seal_key(cls, path: Path | None) -> Path | None:
        path = path and path.expanduser()
        if path is not None and not (path.is_file() and os.access(path, os.R_OK) and shutil.which("ssh-keygen")):
            raise ValueError("a file that can be read: a private key of ssh-keygen, which must be installed here")
        return path

    @field_validator("BASELINE_PERCENT")
    @classmethod
    def _of_a_baseline(cls, percent: float, info: ValidationInfo) -> float:
        if info.data.get("BASELINE", "") is None:
            raise ValueError("nothing without BASELINE, which it belongs to")
        return percent

    @model_validator(mode="after")
    def _folders_apart(self) -> TestConf:
        if f"{self.FLAGPERF_PATH_CONTAINER}/".startswith(f"{self.FLAGPERF_LOG_PATH_CONTAINER}/"):
            raise ValueError(
                f"FLAGPERF_LOG_PATH_CONTAINER {self.FLAGPERF_LOG_PATH_CONTAINER!r} would hide FLAGPERF_PATH_CONTAINER "
                f"{self.FLAGPERF_PATH_CONTAINER!r}: another folder, or one inside it"
            )
        return self
