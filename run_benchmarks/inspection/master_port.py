"""Decides the master port of a round: the first free port from MASTER_PORT on that no other run has claimed.

A port is free if nobody listens; between the choice and torchrun's listening a claim keeps other runs away. Claims are
files in .clusterdyno/ports of the user's home on the host, so that all head nodes of that user see them. The host
itself takes the port, because choosing and claiming must be one round trip.
"""

from __future__ import annotations

from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import Plan

PORTS_TRIED = 200
CLAIM_MINUTES = 10  # after which a claim on a port without a listener is void
# Sets `claims`, the folder of claims in the user's home; "" without a home.
HOME_CLAIMS = "claims=${HOME:+$HOME/.clusterdyno/ports}"
# Defines claim_port. Arguments: folder of claims for users without a home, run, first port, port to stop at, minutes
# after which a claim is void. It prints `port N`, or nothing if all are taken.
CLAIM = (
    r"""
claim_port() {
  HOME_CLAIMS
  mkdir -p "$claims" 2>/dev/null && [ -w "$claims" ] || { claims=$1; mkdir -p "$claims"; }
  listening=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {n = split($2, a, ":"); print a[n]}')
  port=$3
  while [ "$port" -lt "$4" ]; do
    claim="$claims/$(uname -n)-$port"
    case " $(echo $listening) " in
    *" $(printf %04X "$port") "*) ;;
    *)
      if (set -C; printf %s "$2" > "$claim") 2>/dev/null; then echo "port $port"; return; fi
      if [ -n "$(find "$claim" -mmin "+$5" 2>/dev/null)" ]; then printf %s "$2" > "$claim"; fi
      if [ "$(cat "$claim")" = "$2" ]; then touch "$claim"; echo "port $port"; return; fi
      ;;
    esac
    port=$((port + 1))
  done
}
"""
).replace("HOME_CLAIMS", HOME_CLAIMS)
CLAIM_ALONE = f'set -eu\numask 027\n{CLAIM}\nclaim_port "$@"'


def candidates(port_from: int) -> range:
    """The ports that a round may take, in the order of trial."""
    return range(port_from, min(port_from + PORTS_TRIED, 1 << 16))


def claim_arguments(plan: Plan, port_from: int) -> list[str]:
    """The arguments of the shell's claim_port."""
    ports = candidates(port_from)
    return [plan.ports_dir_host, plan.key, str(ports.start), str(ports.stop), str(CLAIM_MINUTES)]


def claimed_port(host: str, answer: list[str], port_from: int) -> int:
    """The port in the lines that claim_port printed.

    Raises:
        TaskError: PORTS_TRIED ports in a row are taken.
    """
    for line in answer:
        word, _, port = line.partition(" ")
        if word == "port" and port in map(str, candidates(port_from)):
            return int(port)
    raise TaskError(host, f"no free master port from {port_from} on")


def claim_port(host: Host, plan: Plan, port_from: int, *, deadline: float) -> int:
    """Claim a port on a host for the run of `plan`; `deadline` in seconds.

    Raises:
        TaskError: PORTS_TRIED ports in a row are taken.
        HostError: the host could not be asked.
    """
    argv = ["sh", "-c", CLAIM_ALONE, "sh", *claim_arguments(plan, port_from)]
    return claimed_port(host.name, host.run(argv, deadline=deadline).stdout.splitlines(), port_from)
