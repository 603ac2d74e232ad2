"""Collects what an earlier controller, or this one, could not collect of an attempt at a round, and judges it again."""

from collections.abc import Collection

from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.results.records import RoundRecord, read_round
from run_benchmarks.results.seal import unseal
from run_benchmarks.rounds.collect import recorded_output
from run_benchmarks.rounds.ending import end_tasks, restore
from run_benchmarks.rounds.owed import restore_recorded, take_recorded_end
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.state.context import RunningNode
from run_benchmarks.state.journal import OwedCollection

ASK_SECONDS = 1.0


class OwedRound(RoundRunner):
    """An attempt at a round that has ended, or whose controller has; use once."""

    def collect_owed(self, owed: OwedCollection, hosts: Collection[str]) -> RoundRecord | None:
        """Collect from those of `hosts` that owe something, and record the attempt again; None if there are none."""
        there = {host: self._nodes[host] for host in owed.hosts if host in hosts}
        recorded = read_round(self.folder)
        if not there or recorded is None:
            return None
        unseal(self._context.result_dir)
        self._make_folders()
        self._master_port, self._started_ms = owed.started.master_port, owed.started.time_ms
        self._resumed = self._begun = True
        restore(self._nodes, owed.collecting.nodes)
        self._ended_early, self._phases = owed.collecting.early_end, dict(recorded.phase_seconds)
        restore_recorded(self._nodes, recorded, there, self._case.framework)
        for host, node in self._nodes.items():
            node.is_owed, node.lost = host in owed.hosts, host in owed.hosts and host not in there
        for host, error in for_each(there, self._attach_node, reads_hosts=True).failed.items():
            there[host].warnings.append(f"{host}: its tasks cannot be looked for: {error}")
        self.left = end_tasks(there)
        for node in there.values():  # a task that was removed with the first record says nothing any more
            node.outcome.output = node.outcome.output or recorded_output(node.outcome.folder, self._case.framework)
        self._collect(there)
        for node in there.values():
            if not node.is_owed:
                take_recorded_end(node)
        return self._record(recorded)

    def still_runs(self) -> str:
        """Why the attempt cannot be collected yet: a workload runs, or a host does not answer; "" if it can be."""

        def runs(node: RunningNode) -> bool:
            return self._attach_node(node) and node.workload is not None and node.workload.wait(ASK_SECONDS) is None

        found = for_each(self._nodes, runs, reads_hosts=True)
        said = [f"{host}: its ranks still run" for host, answer in found.succeeded.items() if answer]
        return "; ".join([*said, *map(str, found.failed.values())])
