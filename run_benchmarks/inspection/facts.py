"""Reads the facts of a host with one POSIX shell script in one round trip, for the check and for the launch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.code_folder import LISTED, LISTING

SECONDS = 20.0
INFINIBAND = "/dev/infiniband"
NO_MAC = "00:00:00:00:00:00"  # of the loopback interface
# Arguments: deploy path, log root, code folder, interpreter ("" for none), master ("" for none), packages
# (blank-separated), what prints the devices' memory, their processes ("" for none); "--", names to resolve, "--",
# device globs, "--", data folders.
# The script looks for installed packages itself: importing importlib.metadata took 30 of the interpreter's 50 ms.
SCRIPT = (
    LISTING
    + r"""
PROBE='
import os, sys
def plain(name): return name.lower().replace("_", "-").replace(".", "-")
def entries(folder):
    try: return os.listdir(folder or ".")
    except OSError: return ()
there = {plain(entry.rsplit(".", 1)[0].split("-")[0])
         for folder in sys.path for entry in entries(folder) if entry.endswith((".dist-info", ".egg-info"))}
print("%d.%d.%d" % sys.version_info[:3], *(name for name in sys.argv[1:] if plain(name) not in there))
'
line_end='
'
say() { printf '%s\t%s\n' "$1" "$2"; }
lines() { set -f; IFS=$line_end; printf "$1\t%s\n" $2; unset IFS; set +f; }
say clock_ns "$(date +%s%N)"
if read -r value _ </proc/loadavg; then say load "$value"; fi 2>/dev/null
if read -r value </sys/devices/system/cpu/online; then say online "$value"; fi 2>/dev/null
if read -r system </proc/sys/kernel/ostype && read -r release </proc/sys/kernel/osrelease &&
  read -r machine </proc/sys/kernel/arch; then say kernel "$system $release $machine"
else say kernel "$(uname -srm)"; fi 2>/dev/null
read -r value </proc/sys/kernel/hostname; say hostname "$value"
# uid=1000(name) gid=1000(group) groups=...; a number without a name stands alone.
ids=$(id); ids=${ids#uid=}; uid=${ids%%[!0-9]*}; ids=${ids#"$uid"}; user=${ids%% gid=*}; ids=${ids#*gid=}
user=${user#"("}; user=${user%")"}
say uid "$uid"; say gid "${ids%%[!0-9]*}"; say user "${user:-$uid}"
deploy=$1; log=$2; code=$3; python=$4; master=$5; packages=$6; memory=$7; processes=$8; shift 9
# The mode of a folder that is not ours, such as /tmp, stays as it is.
is_writable() {
  problem=
  [ -d "$1" ] || problem=$({ mkdir -p "$1" && chmod 0750 "$1"; } 2>&1)
  if [ -d "$1" ] && [ -w "$1" ]; then say writable "$1"
  else say unwritable "$1	${problem:-no permission to write}"; return 1; fi
}
is_writable "$deploy" || deploy=
is_writable "$log" || log=
spaces=$(df -Pk ${deploy:+"$deploy"} ${log:+"$log"} 2>/dev/null)
lines space "$spaces"
if [ -d "$code" ]; then
  listing=$(code_listing "$code" 2>/dev/null)
  digest=$(code_digest "$listing"); say code "$digest"
  if [ "$digest" != "${code##*/}" ]; then
    printf '%s\n' "$listing" | head -n LISTED | awk '{print "code_file\t" $0}'
  fi
fi
if command -v docker >/dev/null 2>&1; then say docker_client yes; fi
if [ -n "$python" ]; then
  if version=$("$python" -c "$PROBE" $packages 2>&1); then say python "$version"
  else say no_python "$(printf %s "$version" | tail -n 1)"; fi
fi
for network in /sys/class/net/*; do
  if [ -d "$network" ]; then say network "${network##*/}"; fi
  if read -r mac <"$network/address"; then say mac "$mac"; fi
done 2>/dev/null
for id in /etc/machine-id /proc/sys/kernel/random/boot_id; do
  if read -r value <"$id"; then say "${id##*/}" "$value"; fi
done 2>/dev/null
say netns "$(readlink /proc/self/ns/net 2>/dev/null)"
if read -r _ key _ </etc/ssh/ssh_host_ed25519_key.pub; then say host_key "$key"; fi 2>/dev/null
while read -r key value _; do
  if [ "$key" = MemAvailable: ]; then say memory_available "$((value * 1024))"; break; fi
done </proc/meminfo 2>/dev/null
# A driver in trouble may hang its tool.
if [ -n "$memory" ]; then timeout 8 $memory 2>/dev/null | sed 's/^/device_memory	/'; fi
if [ -n "$processes" ]; then timeout 8 $processes 2>/dev/null | head -n 64 | sed 's/^/device_process	/'; fi
if [ -d /dev/infiniband ]; then say infiniband /dev/infiniband; fi
if [ -d /sys/class/powercap ] && [ -d /sys/devices/virtual/powercap ]; then say powercap 1; fi
groups=
for file in /dev/ipmi[0-9]* /dev/ipmi/[0-9]* /dev/ipmidev/[0-9]* /sys/class/powercap/intel-rapl:*/energy_uj; do
  [ -e "$file" ] || continue
  if [ -c "$file" ]; then say ipmi "$file"; fi
  group=$(stat -c %g "$file"); groups=${groups:-" $(id -G) "}
  case $groups in *" $group "*) say power_group "$group" ;; esac
done
names=
while [ "$1" != -- ]; do names="$names $1"; shift; done
shift
# One look-up for all names; only where it fails, one each.
resolved=
if [ -n "$names" ] && resolved=$(getent ahosts $master $names 2>/dev/null); then
  for name in $names; do say resolves "$name"; done
else
  for name in $names; do if getent ahosts "$name" >/dev/null 2>&1; then say resolves "$name"; fi; done
fi
if [ -n "$master" ] && command -v ip >/dev/null 2>&1; then
  address=${resolved:-$(getent ahosts "$master" 2>/dev/null)}; address=${address%%[!0-9a-fA-F:.]*}
  if [ -n "$address" ]; then
    route=$(ip -o route get "$address" 2>&1); say route "${route%%$line_end*}"
    case $route in
      local*) own=$(ip -o addr show to "$address" 2>/dev/null); own=${own#*: }; say own "${own%%[ 	]*}" ;;
    esac
  fi
fi
while [ "$1" != -- ]; do
  for device in $1; do if [ -e "$device" ]; then say device "$device"; fi; done
  shift
done
shift
for folder in "$@"; do if [ -r "$folder" ]; then say data "$folder"; fi; done
# The files below /proc/net walk the kernel's table of all connections, 5 ms each; ss asks for the listeners alone.
if sockets=$(ss -Hltn 2>/dev/null); then
  lines listener "$sockets"
else awk '$4 == "0A" {n = split($2, a, ":"); print "listening\t" a[n]}' /proc/net/tcp /proc/net/tcp6 2>/dev/null; fi
say clock_ns "$(date +%s%N)"
""".replace("LISTED", str(LISTED))
)


@dataclass(frozen=True, kw_only=True)
class MachineIdentity:
    """Values that distinguish machines; "" if the host does not report one.

    `boot_id` is of the running kernel, `netns` of the network namespace in it, `machine_id` of the installation (clones
    share it), `host_key` sshd's public key in base64, `macs` the hardware addresses of its interfaces.
    """

    boot_id: str = ""
    netns: str = ""
    machine_id: str = ""
    host_key: str = ""
    macs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Facts of one host from the script. Sizes in bytes; `clock_offset` (host minus head node) and its error in
    seconds.

    `code` is the digest of the code folder's content, None without a folder; `code_listing` is the beginning of its
    content if it differs from the folder's name. `power_groups` are those of the log-in's groups, by number, that own a
    meter of the machine's power: one of `ipmi_devices`, or RAPL's counters. `checked_s`: the head node's epoch seconds;
    `load`: runnable tasks, the mean of the last minute; `mounts`: by folder of `free`; `device_free`: bytes of each
    accelerator; `accelerator_processes`: one line each.
    """

    kernel: str
    hostname: str
    user: str
    uid: int
    gid: int
    clock_offset: float
    clock_error: float
    writable: frozenset[str]
    unwritable: dict[str, str]
    free: dict[str, int]
    code: str | None
    code_listing: tuple[str, ...]
    has_docker_client: bool
    python: str | None
    missing_packages: tuple[str, ...]
    no_python: str | None
    networks: frozenset[str]
    has_infiniband: bool
    has_powercap: bool
    resolves: frozenset[str]
    interface: str | None
    devices: tuple[str, ...]
    data: frozenset[str]
    listening: frozenset[int]
    identity: MachineIdentity = MachineIdentity()
    checked_s: float = 0.0
    load: float | None = None
    cores: int = 1
    mounts: dict[str, str] = field(default_factory=dict)
    memory_available: int | None = None
    device_free: tuple[int, ...] = ()
    accelerator_processes: tuple[str, ...] = ()
    ipmi_devices: tuple[str, ...] = ()
    power_groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Questions:
    """The questions for every host. The name of `code_dir` is the code's digest."""

    deploy: str
    log_root: str
    code_dir: str
    python: str | None
    packages: Sequence[str]
    master: str | None
    names: Sequence[str]
    device_globs: Sequence[str]
    data: Sequence[str]
    device_memory: str = ""
    device_processes: str = ""

    def argv(self) -> list[str]:
        """The command that reads the facts."""
        return [
            *("sh", "-c", SCRIPT, "sh"),
            *(self.deploy, self.log_root, self.code_dir, self.python or "", self.master or ""),
            *(" ".join(self.packages), self.device_memory, self.device_processes),
            *("--", *self.names, "--", *self.device_globs, "--", *self.data),
        ]


def gather(host: Host, questions: Questions) -> HostFacts:
    """Ask one host.

    Raises:
        HostError: the script itself fails.
    """
    asked = time.time()
    completed = host.run(questions.argv(), deadline=SECONDS)
    answered = time.time()
    try:
        return _parse(completed.stdout, asked, answered)
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise HostError(
            host.name, f"unreadable answer to the fact script ({error}): {completed.stdout[:500]!r}"
        ) from error


def _parse(text: str, asked: float, answered: float) -> HostFacts:
    pairs = [line.split("\t", 1) for line in text.splitlines() if "\t" in line]
    one = {pair[0]: pair[1] for pair in pairs}

    def many(key: str) -> list[str]:
        return [pair[1] for pair in pairs if pair[0] == key]

    def table(key: str) -> dict[str, str]:
        return {value.split("\t", 1)[0]: value.split("\t", 1)[1] for value in many(key)}

    # df names no folder: its lines after the header stand in the order of the folders.
    folders, lines = many("writable"), many("space")[1:]
    told = zip(folders, lines, strict=True) if len(folders) == len(lines) else ()
    spaces = {folder: space for folder, line in told if (space := _space(line)) is not None}
    # NTP's offset and delay from four time stamps (RFC 5905, section 8), in seconds.
    first, last = (int(reading) / 1e9 for reading in many("clock_ns"))
    return HostFacts(
        kernel=one["kernel"],
        hostname=one["hostname"],
        user=one["user"],
        uid=int(one["uid"]),
        gid=int(one["gid"]),
        clock_offset=((first - asked) + (last - answered)) / 2,
        clock_error=((answered - asked) - (last - first)) / 2,
        writable=frozenset(many("writable")),
        unwritable=table("unwritable"),
        free={folder: size for folder, (size, _) in spaces.items()},
        mounts={folder: mount for folder, (_, mount) in spaces.items()},
        memory_available=int(one["memory_available"]) if "memory_available" in one else None,
        device_free=tuple(_device_free(line) for line in many("device_memory")),
        accelerator_processes=tuple(many("device_process")),
        code=one.get("code"),
        code_listing=tuple(many("code_file")),
        has_docker_client="docker_client" in one,
        python=(one.get("python") or "").split(" ")[0] or None,
        missing_packages=tuple((one.get("python") or "").split(" ")[1:]),
        no_python=one.get("no_python"),
        networks=frozenset(many("network")),
        has_infiniband="infiniband" in one,
        has_powercap="powercap" in one,
        resolves=frozenset(many("resolves")),
        interface=_interface(one.get("own"), one.get("route")),
        devices=tuple(many("device")),
        data=frozenset(many("data")),
        listening=frozenset(
            [int(port, 16) for port in many("listening")]
            + [int(line.split()[3].rpartition(":")[2]) for line in many("listener") if line]
        ),
        checked_s=answered,
        load=float(one["load"]) if "load" in one else None,
        cores=processors(one.get("online", "")),
        ipmi_devices=tuple(many("ipmi")),
        power_groups=tuple(sorted(set(many("power_group")) - {one["gid"]})),
        identity=MachineIdentity(
            boot_id=one.get("boot_id", ""),
            netns=one.get("netns", ""),
            machine_id=one.get("machine-id", ""),
            host_key=one.get("host_key", ""),
            macs=frozenset(mac for mac in many("mac") if mac and mac != NO_MAC),
        ),
    )


def read_space(text: str) -> tuple[int, str] | None:
    """Free bytes and mount point from the output of `df -Pk` for one path; None if it is malformed."""
    lines = text.splitlines()
    return _space(lines[1]) if len(lines) > 1 else None


def _space(line: str) -> tuple[int, str] | None:
    words = line.split(maxsplit=5)
    return (int(words[3]) * 1024, words[5]) if len(words) == 6 and words[3].isdecimal() else None


def processors(ranges: str) -> int:
    """Number of processors in a list of the kernel such as `0-3,8`, at least 1."""
    pairs = (word.split("-") for word in ranges.strip().split(",") if word)
    return max(1, sum(int(pair[-1]) - int(pair[0]) + 1 for pair in pairs))


def _device_free(line: str) -> int:
    """Free bytes of a device; a device that does not report them counts as unlimited."""
    _, total, used = (word.strip() for word in line.split(","))
    return (int(total) - int(used)) << 20 if total.isdecimal() and used.isdecimal() else 1 << 62


def _interface(own: str | None, route: str | None) -> str | None:
    """The interface that holds the master's address (on the master itself), or the one of the route to it."""
    if own:
        return own
    words = (route or "").split()
    return words[words.index("dev") + 1] if "dev" in words[:-1] else None
