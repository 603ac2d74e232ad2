"""Defines a finding of the network benchmark as data: the bad part, the kind of fault, its evidence and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

# link: the path between two hosts that are both fine; pair: one of the two or their path; the rest: groups of hosts.
BadPart = Literal["host", "device", "link", "pair", "rail", "batch", "half", "rack"]
# constant: slow in (nearly) every operation; intermittent: in a part of them; stalls: waits for retransmission.
FaultKind = Literal["constant", "intermittent", "stalls"]
SymptomName = Literal["bandwidth", "latency", "stalls"]
# round.json takes 64 Ki characters of a metric (run_benchmarks.results.judge).
MAX_CHARACTERS_TOLD = 60 << 10
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkFinding:
    """A part of the cluster that is worse than its peers.

    `hosts` are those concerned, `node_ranks` theirs in the job. `device` names the NIC of a bad device ("mlx5_4", or
    "rail 4" where the NIC is unknown), the rail of a bad link, a rack ("rack leaf0"), or a group ("batch 2"), and the
    direction if it alone is bad ("sending", "receiving"; of a link "one way", from its first host); else it is empty.
    `share_of_expected` is the measured rate / that of the peers (below 1 is worse; None if stalls are the only
    symptom), `p_value` the probability that chance alone brings so much evidence in any of the run's comparisons (None
    where there was no test). `evidence`,
    `cause` and `suggested_action` name no host.
    """

    part: BadPart
    hosts: tuple[str, ...]
    node_ranks: tuple[int, ...]
    device: str = ""
    kind: FaultKind
    symptoms: tuple[SymptomName, ...]
    share_of_expected: _Share | None
    p_value: _Probability | None
    evidence: str
    cause: str
    suggested_action: str

    @property
    def subject(self) -> str:
        """The bad part in words."""
        if self.part == "host":
            return f"host {self.hosts[0]} {self.device}".rstrip()
        if self.part == "device":
            return f"{self.hosts[0]} {self.device}"
        if self.part in ("link", "pair"):
            return f"pair {'-'.join(self.hosts)} {self.device}".rstrip() + " alone" * (self.part == "link")
        return f"{self.device} ({', '.join(self.hosts)})"

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return f"{self.subject}: {self.evidence}: {self.cause}"

    @property
    def drained_hosts(self) -> tuple[str, ...]:
        """The hosts to take out of service: that of a bad host or device. A bad link, rack or group accuses no host."""
        return self.hosts if self.part in ("host", "device") else ()

    def to_json(self) -> dict[str, JsonValue]:
        """The finding as FINISHED and round.json hold it, with its sentence."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return found | {"sentence": self.sentence}

    def renamed(self, names: Mapping[int, str]) -> NetworkFinding:
        """The same with the host names in `names`, by node rank, in place of the hosts' own."""
        hosts = tuple(names.get(rank, own) for rank, own in zip(self.node_ranks, self.hosts, strict=True))
        return replace(self, hosts=hosts)


def told(findings: Sequence[NetworkFinding]) -> dict[str, JsonValue]:
    """The findings in the value of FINISHED: as many of them as round.json has room for, and the number of the
    others.
    """
    room, kept = MAX_CHARACTERS_TOLD, list[JsonValue]()
    for each in findings:
        value = each.to_json()
        room -= len(json.dumps(value)) + 2
        if room < 0:
            break
        kept.append(value)
    left: dict[str, JsonValue] = {"findings_left_out": len(findings) - len(kept)} if len(kept) < len(findings) else {}
    return {"findings": kept, **left}


_ADAPTER: TypeAdapter[NetworkFinding] = TypeAdapter(NetworkFinding)


def findings_of(values: object, names: Mapping[int, str] | None = None) -> tuple[NetworkFinding, ...]:
    """The findings in a JSON list, with the host names in `names` by node rank.

    Raises:
        ValueError: the value is no list of findings as `to_json` makes them.
    """
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"findings: {values!r} is no list")
    found = []
    for value in values:
        fields: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
        fields.pop("sentence", None)
        try:
            finding = _ADAPTER.validate_python(fields)
        except ValidationError as error:
            raise ValueError(f"findings: {value!r} is no finding: {error.error_count()} wrong values") from error
        if not finding.hosts or len(finding.hosts) != len(finding.node_ranks):
            raise ValueError(f"findings: {value!r}: hosts and node_ranks differ in number, or there are none")
        found.append(finding.renamed(names or {}))
    return tuple(found)
