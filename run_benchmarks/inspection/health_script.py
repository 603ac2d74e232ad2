"""The POSIX shell script that prints the health of a host, a line `key<TAB>value` each; `health.py` judges them.

Sources: Linux, Documentation/ABI (sysfs-bus-pci, sysfs-class-infiniband, sysfs-kernel-iommu_groups), proc(5), ping(8).
"""

from __future__ import annotations

import shlex

from run_benchmarks.inspection.health_of_devices import health_checks

KERNEL_LOG = (
    "Hardware Error", "EDAC .* UE ", "EXT4-fs error", "XFS .*[Cc]orruption", "I/O error",
    "emounting filesystem read-only", "fallen off the bus", "uncorrectable hardware",
)  # fmt: skip
LASTING = "read-only|fallen off the bus| ue |ncorrect"
"""Of what the kernel logs, in small letters: what stays until somebody mends it."""
_GRAVE = f"{LASTING}|hardware error"  # not to be lost among many lines
MODULES = ("mlx5_core", "ib_core", "efa", "irdma", "bnxt_re")
FILE_SYSTEMS = r"""
of_folder() { # its number and name; ends where a command does not answer: the next would not, either
  folder=$2
  while [ -n "$folder" ]; do # not made yet: the nearest folder above it
    timeout -s KILL 5 sh -c '[ -d "$1" ]' sh "$folder"
    case $? in 0) break ;; 124 | 137) return ;; esac
    case $folder in */?*) folder=${folder%/*} ;; *) folder= ;; esac
  done
  : "${folder:=/}"
  say "$1	folder" "$folder"
  options=$(timeout -s KILL 5 findmnt -nro OPTIONS -T "$folder")
  case $? in
    0) ;;
    124 | 137) return ;;
    *) say "$1	cannot" "mount options of $folder	no findmnt, or no answer" ;;
  esac
  case $folder,$options, in
    /,ro,* | /,*,ro,*) state=image ;; # an operating system that is an image: its root is always full and never written
    *,ro,* | *,emergency_ro,*) state=readonly ;;
    *) state= ;;
  esac
  if [ -n "$state" ]; then say "$1	$state" "$folder"; fi
  for kind in k:space i:inodes; do
    told=$(timeout -s KILL 5 df "-P${kind%:*}" "$folder")
    case $? in 124 | 137) return ;; esac
    printf '%s\n' "$told" |
      awk -v number="$1" -v kind="${kind#*:}" -v name="$folder" -v state="$state" 'NR == 2 {told = 1
        if (kind == "space") print number "\tdevice\t" name "\t" $1
        if (!state) print number "\t" kind "\t" name "\t" $2 "\t" $4}
        END {exit !(told || state || kind == "inodes")}' || say "$1	cannot" "space of $folder	no answer of df"
  done
  say "$1" answered
}
{
  exec 2>/dev/null # "2>" beside a function's call leaves a copy open, for whose end the look would wait
  number=0
  for folder; do
    if [ "$folder" = -- ]; then break; fi
    number=$((number + 1))
    of_folder "$number" "$folder" &
  done
} | timeout 15 cat | awk -F '\t' '
  BEGIN {while (++count < ARGC && ARGV[count] != "--") name[count] = ARGV[count]; ARGC = 1}
  $2 == "answered" {answered[$1]; next}
  $2 == "folder" {name[$1] = $3; next}
  {number = $1; sub(/^[0-9]+\t/, ""); lines[number] = lines[number] $0 "\n"}
  END {for (number = 1; number < count; number++) if (!told[name[number]]++) {
    printf "%s", lines[number]
    if (!(number in answered)) print "cannot\tfile system of " name[number] "\tno answer"}}' "$@"
"""
"""Prints the device of each folder's file system (arguments up to "--"), and `image`, `readonly`, or space and inodes,
whole and free. All folders are asked at once, and nothing waits for a command on a dead mount, which no signal may end.
"""
SAY = r"""say() { printf '%s\t%s\n' "$1" "$2"; }"""
# Arguments: what stands before /sys and /proc ("" on a host), folders whose file systems are looked at; "--", names to
# resolve; "--", addresses of peers.
# A line `cannot<TAB>what<TAB>why` says that something could not be looked at; `blind`: no host is accepted without.
_SCRIPT = r"""
root=$1; shift
SAY
asks() { # a tool, so many seconds at most, and all calls together a minute: where one hangs, the next does, too
  now=$(date +%s); left=$((began + 60 - now)); most=$1; shift
  if [ "$left" -le 0 ]; then return 124; fi
  timeout "$((left < most ? left : most))" "$@" 2>/dev/null
}
value() { IFS= read -r found <"$1" && printf '%s' "$found"; } 2>/dev/null
log=$(timeout 8 dmesg 2>/dev/null) || log=
first=${log%%.*}; first=${first#[}; first=${first##* } # a long log has lost its beginning: seconds of its first line
case $first in *[!0-9]*) first= ;; esac
if [ -z "$log" ] || [ "${first:-0}" -gt 60 ]; then
  journal=$(timeout 8 journalctl -kb -q --no-pager -o cat 2>/dev/null) || journal=
  case $journal in
    *'Linux version '*) ;; # the first line of every kernel
    ?*) say cannot "kernel log	its beginning is overwritten, in the journal, too" ;;
    *) if [ -n "$log" ]; then say cannot "kernel log	its beginning is overwritten, and there is no journal"; fi ;;
  esac
  # The journal's lines, and those of dmesg that it lacks: it may have been full, or ended.
  log=$(printf '%s\n' "$journal" -- "$log" | awk '!late && $0 == "--" {late = 1; next} !late {known[$0] = 1} late {
    text = $0; sub(/^(\[[^]]*\])+ /, "", text); if (text in known) next} {print}')
fi
if [ -n "$log" ]; then
  say log read
  printf '%s\n' "$log" | grep -E KERNEL_LOG |
    grep -Ev 'dev (sr|fd|loop)[0-9]' | alike=ALIKE grave=GRAVE awk '{ # of lines alike the first, and their number
      gsub(/\t/, " "); key = $0; sub(/^(\[[^]]*\])+ /, "", key) # the time, and who called (CONFIG_PRINTK_CALLER)
      known = match(key, ENVIRON["alike"]) && RLENGTH > 0
      class = known ? "known" : (tolower(key) ~ ENVIRON["grave"])
      if (known) key = substr(key, RSTART, RLENGTH)
      else {
        gsub(/0x[0-9a-fA-F]+|=[^ ]*/, "", key); count = split(key, words, " "); key = ""
        for (n = 1; n <= count; n++) # numbers make no kind, but that of a CPU
          if (words[n-1] == "CPU" || words[n] !~ /^[(#]?[0-9a-fA-F.]*[0-9][0-9a-fA-F.]*[],.;:)]*$/)
            key = key " " words[n]
      }
      if (!(key in times) && ++kinds[class] <= 64) {keys[++kept] = key; first[key] = $0}
      times[key]++; if (!(key in first)) cut++
    }
    END {
      for (n = 1; n <= kept; n++) print "log_line\t" times[keys[n]] "\t" first[keys[n]]
      if (cut) print "log_cut\t" cut
    }'
else say blind "kernel log	no permission (kernel.dmesg_restrict), or no dmesg and no journalctl"; fi
[ -d "$root/sys/bus/pci/devices" ] || say cannot "PCIe links	no /sys/bus/pci"
untold=
for device in "$root"/sys/bus/pci/devices/*; do
  class=$(value "$device/class") || continue
  case $class in 0x03*|0x12*|0x02*|0x0108*) ;; *) continue ;; esac
  case $class in 0x03*|0x12*) ;; *) # accelerators lower their link's speed while they are idle
    now=$(value "$device/current_link_speed"); most=$(value "$device/max_link_speed")
    kind=$(value "$device/vendor"):$(value "$device/device")
    above=$(value "$device/../max_link_speed") # of its port, as below
    now=${now%% *}; most=${most%% *}
    if [ -n "$now" ] && [ -n "$most" ]; then say pcie_speed "${device##*/} $kind $now $most ${above%% *}"; fi ;;
  esac
  now=$(value "$device/current_link_width"); most=$(value "$device/max_link_width")
  above=$(value "$device/../max_link_width") # of the port that it hangs on, its parent in sysfs
  if [ "${above:-0}" -gt 0 ] && [ "$above" -lt "${most:-0}" ]; then most=$above; fi
  if [ "${now:-0}" != 0 ] && [ "${most:-0}" != 0 ] && [ "$now" != 255 ]; then
    kind=$(value "$device/vendor"):$(value "$device/device")
    say pci "${device##*/} $kind $now $most"
  elif [ -n "$now" ] && [ ! -e "$device/physfn" ]; then untold="$untold ${device##*/}"; fi # a virtual one
done
if [ -n "$untold" ]; then say cannot "PCIe links	the kernel does not tell the width of$untold"; fi
for module in MODULES; do
  if version=$(value "$root/sys/module/$module/version"); then say version "$module $version"; fi
done
say version "kernel $(value "$root/proc/sys/kernel/osrelease")"
if bios=$(value "$root/sys/class/dmi/id/bios_version"); then
  say firmware "BIOS of $(value "$root/sys/class/dmi/id/product_name")	$bios"
fi
for device in "$root"/sys/class/nvme/*; do
  if revision=$(value "$device/firmware_rev"); then say firmware "$(value "$device/model")	$revision"; fi
done
for device in "$root"/sys/class/infiniband/*; do
  [ -d "$device" ] || continue
  say version "${device##*/} $(value "$device/fw_ver")"
  for port in "$device"/ports/*; do
    keys=; for key in "$port"/pkeys/*; do
      number=$(value "$key"); if [ "${number:-0x0000}" != 0x0000 ]; then keys="$keys,$number"; fi
    done
    state=$(value "$port/state"); rate=$(value "$port/rate")
    say rdma "${device##*/}/${port##*/}	${state#*: }	${rate%% *}	${keys#,}"
  done
done
began=$(date +%s)
DEVICES
translated=0
for kind in "$root"/sys/kernel/iommu_groups/*/type; do
  case $(value "$kind") in DMA*) translated=$((translated + 1)) ;; esac
done
say iommu "$translated"
while read -r key number _; do
  case $key in HugePages_Total:) say setting "huge pages	$number" ;; esac
done <"$root/proc/meminfo" 2>/dev/null
if pages=$(value "$root/sys/kernel/mm/transparent_hugepage/enabled"); then
  pages=${pages#*[}; say setting "transparent huge pages	${pages%%]*}"
fi
if governor=$(value "$root/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); then
  say setting "CPU governor	$governor"
fi
most=$(value "$root/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
if capped=$(value "$root/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"); then say cpu "$capped	$most"; fi
say memlock "$(ulimit -l)"; say files "$(ulimit -Hn)"
# chronyd without rtcsync leaves the kernel's mark, which timedatectl shows, unset.
tracking=$(timeout 5 chronyc -n tracking 2>/dev/null)
case $tracking in
  *'Not synchronised'*) synced=no ;;
  *'Leap status'*) synced=yes ;;
  *) synced=$(timeout 5 timedatectl show -p NTPSynchronized --value 2>/dev/null) ;;
esac
if [ -n "$synced" ]; then say synced "$synced"
else say cannot "clock synchronisation	neither timedatectl nor chronyc answers"; fi
FILE_SYSTEMS
while [ "$1" != -- ]; do shift; done
shift
addresses() { timeout 8 getent ahosts "$1" 2>/dev/null | awk '!seen[$1]++ {printf "%s%s", n++ ? "," : "", $1}'; }
if command -v getent >/dev/null 2>&1; then
  if own=$(value "$root/proc/sys/kernel/hostname"); then say own_name "$own	$(addresses "$own")"; fi
  for name; do
    if [ "$name" = -- ]; then break; fi
    say resolved "$name	$(addresses "$name")" & # a dead server of names costs each its time
  done
  wait
else say cannot "names	no getent"; fi
while [ "$1" != -- ]; do shift; done
shift
towards() { # a peer: its address, and the bytes of the headers
  address=$(timeout 8 getent ahosts "$1" 2>/dev/null); address=${address%%[!0-9a-fA-F:.]*}
  case $address in *:*) head=48 ;; *) head=28 ;; esac
}
reaches() { # a frame with so many bytes after its headers, again if it is lost
  for try in $(seq "${2:-2}"); do
    if timeout 4 ping -n -q -c 1 -W 1 -M do -s "$1" "$address" >/dev/null 2>&1; then return 0; fi
  done
  return 1
}
send() { # the largest frame
  towards "$1"
  route=$(ip -o route get "${address:-$1}" 2>/dev/null); network=${route#* dev }; network=${network%% *}
  if ! mtu=$(value "$root/sys/class/net/${network:-none}/mtu"); then
    say cannot "largest frame	no address of $1, or no route to it"
  elif [ "$network" = lo ]; then :
  elif ! reaches 56; then say cannot "largest frame	$1 answers no ping"
  elif reaches $((mtu - head)) 6; then say frame "$1	$network	$mtu	passes	$mtu"
  else say frame "$1	$network	$mtu	lost	unknown"; fi
}
if [ "$#" = 0 ]; then :
elif ! command -v ping >/dev/null 2>&1 || ! command -v ip >/dev/null 2>&1; then
  say cannot "largest frame	no ping or no ip command"
else
  sent=$(begun=0; for peer; do
    send "$peer" & begun=$((begun + 1)); if [ $((begun % 16)) = 0 ]; then wait; fi
  done | sort)
  lost=$(printf '%s\n' "$sent" | awk -F '\t' '$5 == "lost" {print $2, $4; exit}')
  most=unknown
  if [ -n "$lost" ]; then # the largest that passes, of one
    towards "${lost% *}"; low=$((56 + head)); high=${lost#* }
    while [ $((high - low)) -gt 1 ]; do
      middle=$(((low + high) / 2))
      if reaches $((middle - head)); then low=$middle; else high=$middle; fi
    done
    most=$low
  fi
  printf '%s\n' "$sent" | awk -F '\t' -v most="$most" '$5 == "lost" && !told++ {sub(/unknown$/, most)} {print}'
fi
say end ok
"""


def health_script() -> str:
    """The script, with the vendors' parts; its arguments are said at its beginning."""
    checks = health_checks()
    of_devices = [each for check in checks for each in check.kernel_log]
    modules = (*(each for check in checks for each in check.modules), *MODULES)
    parts = {
        "KERNEL_LOG": shlex.quote("|".join((*KERNEL_LOG, *of_devices))),
        "GRAVE": shlex.quote(_GRAVE),
        "ALIKE": shlex.quote("|".join(of_devices)),
        "MODULES": shlex.join(modules),
        "SAY": SAY,
        "FILE_SYSTEMS": FILE_SYSTEMS,
        "DEVICES": "\n".join(f"(\n{check.script}\n)" for check in checks),  # each with variables of its own
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(name, part)
    return text
