"""Before a round's tasks: each node's folder, the page cache, and on the master a port that no other run takes."""

from __future__ import annotations

from run_benchmarks.errors import TaskError
from run_benchmarks.inspection.check import PORTS_TRIED
from run_benchmarks.plan.plan import Plan
from run_benchmarks.state.context import RunningNode

# A port is free where nobody listens; between choosing it and torchrun's listening a claim keeps other runs off.
CLAIM_MINUTES = 10
# Arguments: folder, 1 to clear the caches; on the master alone: folder of claims for who has no home, run, first port,
# port to stop at, minutes after which a claim on a port where nobody listens is void.
SCRIPT = r"""
set -eu
umask 027
mkdir -p "$1"
if [ "$2" = 1 ]; then
  sync; (echo 3 > /proc/sys/vm/drop_caches) 2>/dev/null || echo "caches not cleared"
fi
[ "$#" -gt 2 ] || exit 0
claims=${HOME:+$HOME/.clusterdyno/ports}
mkdir -p "$claims" 2>/dev/null && [ -w "$claims" ] || { claims=$3; mkdir -p "$claims"; }
listening=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {n = split($2, a, ":"); print a[n]}')
port=$5
while [ "$port" -lt "$6" ]; do
  claim="$claims/$(uname -n)-$port"
  case " $(echo $listening) " in
  *" $(printf %04X "$port") "*) ;;
  *)
    if (set -C; printf %s "$4" > "$claim") 2>/dev/null; then echo "port $port"; exit; fi
    if [ -n "$(find "$claim" -mmin "+$7" 2>/dev/null)" ]; then printf %s "$4" > "$claim"; fi
    if [ "$(cat "$claim")" = "$4" ]; then touch "$claim"; echo "port $port"; exit; fi
    ;;
  esac
  port=$((port + 1))
done
"""


def prepare_node(node: RunningNode, plan: Plan, *, port_from: int | None, deadline: float) -> int | None:
    """Make a node's folder; where `port_from` is given, claim the first free port from it on and return that.

    Raises:
        TaskError: PORTS_TRIED ports in a row are taken.
        HostError: the host could not be prepared.
    """
    node.host.connect()
    words = [node.plan.log_dir_host, "1" if plan.clear_caches else "0"]
    if port_from is not None:
        stop = min(port_from + PORTS_TRIED, 1 << 16)
        words += [plan.ports_dir_host, plan.key, str(port_from), str(stop), str(CLAIM_MINUTES)]
    answer = node.host.run(["sh", "-c", SCRIPT, "sh", *words], deadline=deadline).stdout.splitlines()
    if "caches not cleared" in answer:
        node.warnings.append(f"{node.plan.host}: CLEAR_CACHES needs root there: caches were not cleared")
    if port_from is None:
        return None
    ports = [int(line.split()[1]) for line in answer if line.startswith("port ")]
    if not ports:
        raise TaskError(node.plan.host, f"no free master port from {port_from} on")
    return ports[0]
