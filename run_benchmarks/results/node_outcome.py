"""Reads the outcome of one node of a round: the end of its task, and the files that were collected from it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protocol import safe_json
from protocol.circumstance import Circumstance, CircumstanceKind, NodeLook
from protocol.node_record import NODE_EXIT_FILE, NodeExit
from protocol.rank_states import NodeRanks
from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.results.curves import NodeCurves, node_curves
from run_benchmarks.results.rank_logs import RankLog, rank_log_name, read_rank_log
from run_benchmarks.results.records import CollectedFile
from run_benchmarks.results.samples.summary import SummaryError, summarize
from run_benchmarks.results.samples.timeline import Timeline


@dataclass(kw_only=True)
class NodeOutcome:
    """One node after a round. `exit_code` is the task's own; None if it never ran or was lost (`error` says why).

    `silent_ms`: when its end was noticed, or first no answer came, epoch ms of the head node; `heard_ms`, of a host or
    task that fell silent: when it last answered; `lost`: the host itself fell silent. `circumstances` explain what
    broke, the strongest first; `look` shows its ranks when the controller ended the round.
    """

    node: NodePlan
    folder: Path
    exit_code: int | None = None
    error: str | None = None
    output: str = ""
    files: dict[str, CollectedFile] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()
    incomplete: bool = False
    cut: frozenset[str] = frozenset()  # names of logs of which beginning and end were collected
    clock_offset: float = 0.0
    stopped: bool = False
    lost: bool = False
    heard_ms: int | None = None
    silent_ms: int | None = None
    circumstances: tuple[Circumstance, ...] = ()
    look: NodeLook | None = None
    curves: NodeCurves | None = None  # since monitor_summary

    @property
    def is_lost(self) -> bool:
        """Whether the infrastructure broke this part of the round, not its workload."""
        return self.lost or any(each.kind.is_infrastructure for each in self.circumstances)

    def circumstance(self, kind: CircumstanceKind) -> str | None:
        """The words on that kind of circumstance; None without one."""
        return next((each.words for each in self.circumstances if each.kind is kind), None)

    def exit_record(self) -> NodeExit | None:
        """node_exit.json, if it exists and is complete."""
        try:
            return NodeExit.read(self.folder)
        except (OSError, ValidationError, safe_json.UnsafeJsonError):
            return None

    def node_ranks(self) -> NodeRanks | None:
        """rank_states.json, if it exists and is complete."""
        return NodeRanks.found(self.folder)

    def rank_logs(self) -> list[RankLog]:
        """The logs of this node's ranks, with steps for rank 0 only."""
        return [
            read_rank_log(self.folder, rank, with_steps=rank == 0, is_cut=rank_log_name(rank) in self.cut)
            for rank in self.node.ranks
        ]

    def monitor_summary(self, phase_ms: tuple[int, int] | None = None) -> dict[str, Any] | None:
        """The monitor's figures, with those of the measured work if its times (epoch ms) are given; None if there are
        none. `curves` has what they were over time.
        """
        timeline = Timeline()
        try:
            found = summarize(self.folder / "monitor.jsonl", phase_ms=phase_ms, load=safe_json.load, timeline=timeline)
            self.curves = node_curves(self.node.host, self.node.node_rank, timeline, self.clock_offset, phase_ms)
            figures = safe_json.plain(asdict(found))
        except (OSError, SummaryError, KeyError, TypeError, ValueError, AttributeError):  # a host may send anything
            return None
        return figures if isinstance(figures, dict) else None

    def missing(self) -> list[str]:
        """Required files that did not arrive from this node, and other files that exist only on its host."""
        expected = [
            *(rank_log_name(rank) for rank in self.node.ranks),
            NODE_EXIT_FILE,
            "monitor.jsonl",
            "sys_info.json",
        ]
        absent = [name for name in expected if not (self.folder / name).is_file()]
        return [*absent, *(name for name in self.left_behind if name not in absent)]
