"""Defines a finding: a part of the cluster that a benchmark or a monitor found to be worse than it should be."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, get_args, runtime_checkable

from pydantic import AfterValidator, BaseModel, Field

from protocol.outcome import MeasuredCase, MeasuredRound

# link: the path between two hosts that are both fine. rack: what the hosts of one switch share. group: several hosts or
# devices of which it is not known which one it is. pair (one of two hosts, or their path), rail, batch and half: groups
# by the pattern that measured them; round.json has "group" for each of them.
FindingPart = Literal["host", "device", "link", "rack", "group", "pair", "rail", "batch", "half"]
# constant: slow in (nearly) every operation; intermittent: in a part of them; stalls: waits for retransmission;
# below_expected: slower than the link that the case expects; transport: another transport than the devices have;
# link_errors: a port counted errors; link_speed: a port or slot slower or narrower than it can be. Of an accelerator:
# lost: it stopped answering; memory_errors: uncorrected ones; device_errors: the driver reported one; heat: too hot;
# different_results: its results have other bits than those of its kind. Of a tool of others: failed_test: it says that
# something is broken, or gives no result here alone; not_run: it gives none, or a part was not seen: nothing is proved.
# file_system: one ran full or became read-only.
FindingKind = Literal[
    "constant", "intermittent", "stalls", "below_expected", "transport", "link_errors", "link_speed", "lost",
    "memory_errors", "device_errors", "heat", "different_results",
    "failed_test", "not_run", "file_system",
]  # fmt: skip
FindingSeverity = Literal["fault", "warning"]
SymptomName = Literal["bandwidth", "latency", "stalls"]
KINDS: tuple[FindingKind, ...] = get_args(FindingKind)
SEVERITIES: tuple[FindingSeverity, ...] = get_args(FindingSeverity)
MAX_CHARACTERS, MAX_HOSTS, MAX_OBSERVATIONS = 1000, 1 << 16, 12


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


_Text = Annotated[str, AfterValidator(_cut)]


class PartFinding(BaseModel, frozen=True, extra="forbid"):
    """A part that is worse than it should be; texts are cut at MAX_CHARACTERS.

    `hosts` are those concerned. `device` names the NIC of a bad device ("mlx5_4", or "rail 4" where the NIC is
    unknown), the rail of a bad link, a rack ("rack leaf0"), or a group ("batch 2"), and the direction if it alone is
    bad ("sending", "receiving"; of a link "one way", from its first host); else it is empty. `share_of_expected` is the
    measured rate / the expected one (None: there is no rate), `p_value` the probability that chance alone brings such
    evidence in any of the run's comparisons (None: there was no test). `drained_hosts`: hosts to take out of service.
    `sentence` says all in words. `observations`: what the monitors saw on these hosts and at no peer; the cause may be
    among it. FINISHED of the network benchmark alone has the hosts' `node_ranks`, the `symptoms`, and the `cause`.
    """

    part: FindingPart
    hosts: Annotated[tuple[_Text, ...], Field(max_length=MAX_HOSTS)]
    device: _Text = ""
    kind: FindingKind
    severity: FindingSeverity = "fault"
    evidence: _Text
    share_of_expected: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    p_value: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    suggested_action: _Text
    drained_hosts: Annotated[tuple[_Text, ...], Field(max_length=MAX_HOSTS)] = ()
    sentence: _Text = ""
    observations: Annotated[tuple[_Text, ...], Field(max_length=MAX_OBSERVATIONS)] = ()
    node_ranks: Annotated[tuple[int, ...], Field(exclude=True)] = ()
    symptoms: Annotated[tuple[SymptomName, ...], Field(exclude=True)] = ()
    cause: Annotated[_Text, Field(exclude=True)] = ""

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
    def words(self) -> str:
        """The sentence, and what was seen beside it."""
        return self.sentence + (f"; seen there: {'; '.join(self.observations)}" if self.observations else "")

    def is_among(self, names: Sequence[str]) -> bool:
        """Whether its kind or its severity is one of `names`."""
        return self.kind in names or self.severity in names


@runtime_checkable
class FindingOutcome(Protocol):
    """The optional part of an Outcome that names bad parts: each finding degrades its round."""

    def findings(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[PartFinding]:
        """The bad parts that a round shows; none for a healthy one."""
        ...
