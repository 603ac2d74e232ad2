"""The POSIX shell script that prints the facts of a host, a line `key<TAB>value` each; `facts.py` reads them."""

from __future__ import annotations

from run_benchmarks.inspection.code_folder import LISTED, LISTING

# Arguments: deploy path, log root, code folder, interpreter ("" for none), master ("" for none), packages
# (blank-separated), what prints the devices' memory, their processes ("" for none), device nodes of links between hosts
# (blank-separated); "--", names to resolve, "--", device globs, "--", data folders.
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
deploy=$1; log=$2; code=$3; python=$4; master=$5; packages=$6; memory=$7; processes=$8; links=$9; shift 10
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
# A driver in trouble may hang its tool, which prints some errors on stdout; 127: it is not installed.
if [ -n "$memory" ]; then
  told=$(timeout 8 $memory 2>&1); code=$?
  lines device_memory "$told"
  case $code in 0|127) ;; *) say device_trouble "$code" ;; esac
fi
if [ -n "$processes" ] && told=$(timeout 8 $processes 2>/dev/null) && [ -n "$told" ]; then
  lines device_process "$told" | head -n 64
fi
for file in $links; do if [ -e "$file" ]; then say link_device "$file"; fi; done
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
