"""Prepares a round's hosts: each node's folder, the page cache, and on the master a port that no other run takes."""

from __future__ import annotations

from run_benchmarks.inspection.master_port import CLAIM, claim_arguments, claimed_port
from run_benchmarks.plan.plan import Plan
from run_benchmarks.state.context import RunningNode

# Arguments: folder, 1 to clear the caches; on the master alone, those of claim_port (inspection/master_port.py).
SCRIPT = f"""
set -eu
umask 027
{CLAIM}
mkdir -p "$1"
if [ "$2" = 1 ]; then
  sync; (echo 3 > /proc/sys/vm/drop_caches) 2>/dev/null || echo "caches not cleared"
fi
shift 2
[ "$#" -eq 0 ] || claim_port "$@"
"""


def prepare_node(node: RunningNode, plan: Plan, *, port_from: int | None, deadline: float) -> int | None:
    """Make a node's folder within `deadline` seconds; with `port_from`, claim and return the first free port from it
    on.

    Raises:
        TaskError: PORTS_TRIED ports in a row are taken.
        HostError: the host could not be prepared.
    """
    node.host.connect()
    words = [node.plan.log_dir_host, "1" if plan.clear_caches else "0"]
    if port_from is not None:
        words += claim_arguments(plan, port_from)
    answer = node.host.run(["sh", "-c", SCRIPT, "sh", *words], deadline=deadline).stdout.splitlines()
    if "caches not cleared" in answer:
        node.warnings.append(f"{node.plan.host}: CLEAR_CACHES needs root there: caches were not cleared")
    if port_from is None:
        return None
    return claimed_port(node.plan.host, answer, port_from)
