"""Settings of the tools of others. Needs no torch: the controller validates case configs with it."""

import shlex
from typing import Self

from pydantic import Field, field_validator, model_validator

from protocol.case_config import CaseConfig
from training.benchmarks.tools.table import TOOLS

ENTRY_MODULE = "training.benchmarks.tools"


class Config(CaseConfig):
    """Which tools run, with which arguments, and what makes a host a slow one."""

    backend: str | None = Field("gloo", pattern=r"^gloo$", description="the tools use the devices, its ranks do not")
    timeout_s: float = Field(
        3600.0, gt=0, description="seconds after which waiting for the tools of other hosts, if any, fails"
    )
    tools: list[str] = Field([], description=f"of {', '.join(TOOLS)}; one that is not installed is not run, and said")
    arguments: dict[str, str] = Field(
        {}, description='arguments of a tool instead of its own, e.g. `{"ib_write_lat": "-d {device} -s 64"}`'
    )
    devices: list[str] | None = Field(
        None, min_length=1, description="RDMA devices of every host that ib_* test; None: those with an active port"
    )
    inspector_folder: str | None = Field(
        None,
        pattern="^/",
        description="a folder on the hosts with the profiler plugin Inspector's files, which are judged, too",
    )
    inspector_max_age_s: float | None = Field(
        None, gt=0, description="seconds since the last change of a file in inspector_folder; older ones are not read"
    )
    max_percent_behind: float = Field(
        7.0, gt=0, lt=100, description="percent that a host may be worse than the median of the others"
    )

    @field_validator("tools", "arguments")
    @classmethod
    def _are_known(cls, value: list[str] | dict[str, str]) -> list[str] | dict[str, str]:
        unknown = [name for name in value if name not in TOOLS]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: allowed are {', '.join(TOOLS)}")
        if len(set(value)) < len(value):
            raise ValueError("a tool stands there twice")
        return value

    @field_validator("arguments")
    @classmethod
    def _can_be_split(cls, value: dict[str, str]) -> dict[str, str]:
        for name, words in value.items():
            try:
                shlex.split(words)
            except ValueError as error:
                raise ValueError(f"{name}: {words!r}: {error}") from error
        return value

    @model_validator(mode="after")
    def _all_have_an_effect(self) -> Self:
        if not self.tools and self.inspector_folder is None:
            raise ValueError("tools: none is named, and no inspector_folder")
        if idle := [name for name in self.arguments if name not in self.tools]:
            raise ValueError(f"arguments: {', '.join(idle)} is not in tools")
        if self.inspector_max_age_s is not None and self.inspector_folder is None:
            raise ValueError("inspector_max_age_s has no effect without an inspector_folder")
        if self.devices is not None and not any(TOOLS[name].scope != "host" for name in self.tools):
            raise ValueError("devices has no effect without a tool of RDMA devices")
        return self

    def words_of(self, name: str) -> list[str]:
        """The arguments of a tool: its own, or those that the config has for it."""
        given = self.arguments.get(name)
        return list(TOOLS[name].command[1:]) if given is None else shlex.split(given)

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        if nproc != 1:
            return f"nproc = {nproc}; the tools run once on each host: nproc = 1"
        between = [name for name in self.tools if TOOLS[name].scope in ("pairs", "ring")]
        if between and nnodes < 2:
            return f"{', '.join(between)} needs two hosts; ib_write_bw_loopback and ib_write_lat_loopback need one"
        usual = {name: TOOLS[name].usual_seconds(self.words_of(name)) for name in self.tools}
        long = [f"{name} {seconds:g} s" for name, seconds in usual.items() if seconds > self.timeout_s]
        if long and nnodes > 1:
            return f"timeout_s = {self.timeout_s:g} is less than tools usually take: {', '.join(long)}"
        return None
