"""Prepares the hosts for a round: each node's folder and case.json, the page cache, the master's port."""

import io

from protocol.arguments import CACHE_ENV
from protocol.case_file import CASE_FILE, CaseFile
from run_benchmarks.inspection.boot import BOOT, boot_in
from run_benchmarks.inspection.master_port import CLAIM, claim_arguments, claimed_port
from run_benchmarks.plan.plan import Plan
from run_benchmarks.state.context import RunningNode

# Arguments: folder, 1 to clear the caches, place and sha256 of case.json (its text is the input), the folder for hashes
# of data files or ""; on the master alone, those of claim_port (inspection/master_port.py).
SCRIPT = (
    r"""
set -eu
umask 027
mkdir -p "$1" "${3%/*}" ${5:+"$5"}
sha256() { sha256sum < "$1" | cut -c 1-64; }
fresh=$3.$(uname -n).$$
trap 'rm -f "$fresh"' EXIT
(umask 077; cat > "$fresh")
[ "$(sha256 "$fresh")" = "$4" ] || { echo "what arrived for $3 is not what was sent" >&2; exit 1; }
if [ ! -f "$3" ] || [ "$(sha256 "$3")" != "$4" ]; then
  [ ! -e "$3" ] || echo "case replaced"
  chmod 400 "$fresh"
  mv -fT "$fresh" "$3"
fi
if [ "$2" = 1 ]; then
  sync; (echo 3 > /proc/sys/vm/drop_caches) 2>/dev/null || echo "caches not cleared"
fi
shift 5
"""
    + BOOT
    + CLAIM
    + """
[ "$#" -eq 0 ] || claim_port "$@"
"""
)


def prepare_node(
    node: RunningNode, plan: Plan, *, case: CaseFile, port_from: int | None, deadline: float
) -> int | None:
    """Make a node's folder, write its case.json where it differs, and note its boot, within `deadline` seconds; with
    `port_from`, claim and return the first free port from it on.

    Raises:
        TaskError: PORTS_TRIED ports in a row are taken.
        HostError: the host could not be prepared.
    """
    node.host.connect()
    words = [node.plan.log_dir_host, "1" if plan.clear_caches else "0", node.plan.case_file_host, case.sha256]
    words.append(plan.data_cache_host if CACHE_ENV in node.plan.workload.environment else "")
    if port_from is not None:
        words += claim_arguments(plan, port_from)
    argv, text = ["sh", "-c", SCRIPT, "sh", *words], io.BytesIO(case.text.encode())
    answer = node.host.run(argv, stdin=text, deadline=deadline).stdout.splitlines()
    node.boot_id = boot_in(answer)
    if "case replaced" in answer:
        node.warnings.append(f"{node.plan.host}: its {CASE_FILE} differed from that of this run and was replaced")
    if "caches not cleared" in answer:
        node.warnings.append(f"{node.plan.host}: CLEAR_CACHES needs root there: caches were not cleared")
    if port_from is None:
        return None
    return claimed_port(node.plan.host, answer, port_from)
