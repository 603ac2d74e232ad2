"""One benchmark case of test_conf.py, in either of FlagPerf's forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue, WithJsonSchema, field_validator, model_validator

from run_benchmarks.settings.limits import EXPECT_WORDS, limits_by_device
from run_benchmarks.settings.value_types import (
    MOST_ROUNDS_OF_HOSTS,
    ConfigName,
    Count,
    FrameworkName,
    ModelName,
    Processes,
    Retries,
    Rounds,
    Seconds,
    repeated_hosts,
)

CASE_KEY_PARTS = ("model", "framework", "hardware", "nnodes", "nproc", "repeat")
MOST_DIGITS, MOST_SHOWN = 9, 40


class CaseSettings(BaseModel, frozen=True, extra="forbid"):
    """One benchmark case of test_conf.py."""

    model: ModelName = Field(description="a model of training/benchmarks/")
    framework: FrameworkName = Field(description="its framework; a version after '_' chooses an image")
    config: ConfigName = Field(description="a file of vendors/<vendor>/<model>-<framework>/config/")
    repeat: Rounds = Field(1, description=f"how many rounds; times hosts at most {MOST_ROUNDS_OF_HOSTS}")
    nnodes: Count = Field(1, description="how many hosts; where `hosts` is given, all of them by default")
    hosts: tuple[str, ...] | None = Field(
        None, min_length=1, description="names of HOSTS: it runs on the first `nnodes` of these; none: of HOSTS"
    )
    nproc: Processes = Field(description="how many processes run on each host")
    data_dir_host: str | None = Field(None, description="the data on the hosts, an absolute path")
    data_dir_container: str | None = Field(None, description="where a container sees the data")
    time_limit: Seconds | None = Field(None, description="seconds a round may take; none: TIME_LIMIT")
    stall_limit: Seconds | None = Field(None, description="seconds a rank may go without progress; none: STALL_LIMIT")
    retries: Retries = Field(0, description="how often a round that failed is run again")
    predict: bool = Field(False, description="whether the report has its iterations' time as predicted, too")
    overrides: dict[str, JsonValue] = Field(
        {}, description='settings of the case config to change, e.g. `{"sizes": "1M..1G x4"}`'
    )

    expect: Annotated[dict[str, JsonValue], WithJsonSchema({"words": EXPECT_WORDS})] = Field(
        {}, description='limits of metrics, e.g. `{"max_busbw_GBps": ">= 350"}`'
    )

    @model_validator(mode="after")
    def _all_of_its_hosts(self) -> CaseSettings:
        """Where `hosts` is given and nnodes is not: all of them. nnodes stays out of model_fields_set."""
        if self.hosts is not None and "nnodes" not in self.model_fields_set:
            self.__dict__["nnodes"] = len(self.hosts)
        return self

    @field_validator("hosts")
    @classmethod
    def _each_once(cls, hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if mistake := repeated_hosts(hosts or ()):
            raise ValueError(mistake)
        return hosts

    def hosts_of(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """Those of `hosts` that the case may run on, in the order of use."""
        return tuple(hosts) if self.hosts is None else tuple(name for name in self.hosts if name in hosts)

    @field_validator("data_dir_host", "data_dir_container")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if not path:
            return None
        if not path.startswith("/"):
            raise ValueError("expected an absolute path, or '' for none")
        return path

    @field_validator("overrides")
    @classmethod
    def _json(cls, overrides: dict[str, JsonValue]) -> dict[str, JsonValue]:
        json.dumps(overrides, allow_nan=False)  # they are sent as JSON
        return overrides

    @field_validator("expect")
    @classmethod
    def _limits(cls, expect: dict[str, JsonValue]) -> dict[str, JsonValue]:
        limits_by_device(expect)
        return expect

    def limits(self) -> dict[str, dict[str, str]]:
        """The limits of `expect`: by words of a device's name ("": any device) and by metric, such as ">= 180"."""
        return limits_by_device(self.expect)

    @model_validator(mode="after")
    def _both_or_none(self) -> CaseSettings:
        if (self.data_dir_host is None) != (self.data_dir_container is None):
            raise ValueError("data_dir_host and data_dir_container are set together or not at all")
        return self


def parse_case_key(key: str, data_path: object) -> dict[str, Any]:
    """FlagPerf's newer form: "model:framework:hardware:nnodes:nproc:repeat" -> data path (the same in the container).

    Raises:
        ValueError: the number of parts is wrong, a count is no number, or a data path is no text.
    """
    parts = key.split(":")
    if len(parts) != len(CASE_KEY_PARTS):
        raise ValueError(f"a key of {len(CASE_KEY_PARTS)} parts, {':'.join(CASE_KEY_PARTS)}; this has {len(parts)}")
    fields = dict(zip(CASE_KEY_PARTS, parts, strict=True))
    for name in ("nnodes", "nproc", "repeat"):
        if not fields[name].isdecimal() or len(fields[name]) > MOST_DIGITS or int(fields[name]) < 1:
            raise ValueError(f"{name} is a number of at least 1, not {fields[name][:MOST_SHOWN]!r}")
    if not isinstance(data_path, str | None):
        raise ValueError(f"a data path (text, '' for none), not {data_path!r}")
    return {
        "model": fields["model"],
        "framework": fields["framework"],
        "config": f"config_{fields['hardware']}x{fields['nnodes']}x{fields['nproc']}",
        "nnodes": int(fields["nnodes"]),
        "nproc": int(fields["nproc"]),
        "repeat": int(fields["repeat"]),
        "data_dir_host": data_path or None,
        "data_dir_container": data_path or None,
    }
