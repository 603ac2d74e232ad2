"""The part of the health script that looks at accelerators: each kind by its driver's files, and its own tool.

Sources: NVIDIA, nvidia-smi (1). Linux, "GPU Driver Documentation", amdgpu: RAS, thermal controls, XGMI. ROCm, AMD SMI's
changelog: what `amd-smi metric --throttle` and `amd-smi xgmi --link-status` print. Huawei's documents of MindCluster:
what npu-smi and hccn_tool print.
"""

from __future__ import annotations

# A line `device<TAB>name<TAB>what<TAB>value` is of a device that is no NVIDIA GPU.
DEVICES = r"""
if [ -d "$root/sys/module/nvidia" ] || [ -e /dev/nvidiactl ]; then
  asked=index,persistence_mode,power.limit,power.default_limit,clocks.applications.graphics
  asked=$asked,clocks.default_applications.graphics,clocks_throttle_reasons.hw_slowdown
  asked=$asked,clocks_throttle_reasons.applications_clocks_setting,ecc.errors.uncorrected.volatile.total
  if state=$(asks 20 nvidia-smi --query-gpu="$asked" --format=csv,noheader,nounits); then
    printf '%s\n' "$state" | sed 's/^/gpu	/'
  else say cannot "state of the GPUs	nvidia-smi is not installed, or does not answer"; fi
  asked=gpu_bus_id,remapped_rows.pending,remapped_rows.failure
  if state=$(asks 20 nvidia-smi --query-remapped-rows="$asked" --format=csv,noheader); then
    printf '%s\n' "$state" | sed 's/^/rows	/'
  else say cannot "remapped rows of the GPUs	nvidia-smi does not tell"; fi
  asked=gpu_bus_id,fabric.state,fabric.status,fabric.cliqueId,fabric.clusterUuid
  if state=$(asks 20 nvidia-smi --query-gpu="$asked" --format=csv,noheader); then
    printf '%s\n' "$state" | sed 's/^/nvlink_fabric	/'
  else say cannot "NVLink fabric	nvidia-smi does not tell"; fi
  if state=$(asks 20 nvidia-smi nvlink -s); then :
  else state=; say cannot "NVLinks	nvidia-smi nvlink -s does not answer"; fi
  printf '%s\n' "$state" | awk '/^GPU/ {gpu = $2 + 0; seen[gpu] = 1} /Link [0-9]+: / {
    if (/inactive/) down[gpu]++; else if (/GB\/s/) up[gpu]++}
    END {for (gpu in seen) {print "nvlinks\t" gpu "\t" up[gpu] + 0 "\t" down[gpu] + 0; all++; if (up[gpu]) linked++}
      if (all) print "setting\tGPUs with NVLinks\t" linked + 0}'
  if state=$(asks 20 nvidia-smi nvlink -e); then :
  else state=; say cannot "errors of NVLinks	nvidia-smi nvlink -e does not answer"; fi
  printf '%s\n' "$state" | awk '/^GPU/ {gpu = $2 + 0}
    /Link [0-9]+: (Replay|Recovery) Errors: [0-9]+$/ {errors[gpu] += $NF}
    END {for (gpu in errors) print "nvlink_errors\t" gpu "\t" errors[gpu]}'
  asks 20 nvidia-smi --query-gpu=name,vbios_version --format=csv,noheader |
    awk -F ', ' 'NF == 2 {print "firmware\tVBIOS of " $1 "\t" $2}' | sort -u
fi
blind=; gpus=0; linked=0
for device in "$root"/sys/bus/pci/devices/*; do
  level=$(value "$device/power_dpm_force_performance_level") || continue # amdgpu's
  name="${device##*/}"; gpus=$((gpus + 1))
  say device "$name	clocks	$level"
  if bios=$(value "$device/vbios_version"); then say firmware "VBIOS	$bios"; fi
  for limit in "$device"/hwmon/hwmon*/power1_cap; do
    if [ -e "$limit" ]; then say device "$name	power	$(value "$limit") $(value "${limit}_default")"; fi
  done
  if [ -d "$device/xgmi_hive_info" ]; then linked=$((linked + 1)); fi
  awk -v name="$name" '/^ue: *[0-9]+$/ {
      block = FILENAME; sub(/.*\//, "", block); sub(/_err_count/, "", block)
      what = block == "xgmi_wafl" ? "link_errors" : "memory_errors"; errors[what] += $2; told = 1}
    END {for (what in errors) print "device\t" name "\t" what "\t" errors[what]; exit !told}' \
    "$device"/ras/*_err_count 2>/dev/null || blind=yes
  if [ -e "$device/ras/gpu_vram_bad_pages" ]; then
    awk -v name="$name" '$NF == "P" {pending++} $NF == "F" {failed++}
      END {print "device\t" name "\tpages\t" pending + 0 " " failed + 0}' "$device/ras/gpu_vram_bad_pages"
  fi
done
if [ "$gpus" -gt 0 ]; then
  say setting "GPUs in a hive of XGMI	$linked"
  if [ -n "$blind" ]; then say cannot "memory errors of the GPUs	amdgpu shows no ras/*_err_count"; fi
  asks 30 amd-smi xgmi --link-status | awk -v linked="$linked" '/^GPU[0-9]+ +[0-9a-fA-F]+:/ {
      up = down = 0; for (n = 3; n <= NF; n++) {if ($n == "U") up++; if ($n == "D") down++}
      if (up) told = 1; if (!($2 in links)) shown++; links[$2] = up "\t" down}
    END {if (told) for (gpu in links) print "xgmi\t" gpu "\t" links[gpu]
      if (told && shown < linked)
        print "cannot\tXGMI links of the GPUs\tamd-smi xgmi shows " shown " of " linked " GPUs in a hive"
      exit !told}' ||
    say cannot "XGMI links of the GPUs	amd-smi xgmi does not tell of one that is up"
  for option in --throttle --violation; do
    if state=$(asks 30 amd-smi metric "$option"); then break; fi
  done
  buses=$(asks 10 amd-smi list | awk '/^GPU: / {gpu = $2} $1 == "BDF:" {print "bus", gpu, $2}')
  printf '%s\n' "$buses" "$state" | awk '$1 == "bus" {bus[$2] = $3}
    /^GPU: / {gpu = $2 in bus ? bus[$2] : $2} /^ *[A-Z]+(_THERMAL)?_VIOLATION_(STATUS|ACTIVE): (NOT )?ACTIVE$/ {
      told = 1; if ($2 == "NOT") next
      why = $1; sub(/_VIOLATION.*/, "", why); print "device\t" gpu "\tthrottled\t" why}
    END {exit !told}' || say cannot "throttling of the GPUs	amd-smi metric does not tell"
fi
if [ -e "$root/dev/davinci_manager" ] || command -v npu-smi >/dev/null 2>&1; then
  if state=$(asks 20 npu-smi info); then
    driver=${state#*Version: }; say version "npu-smi ${driver%%[ |]*}"
  else state=; say cannot "state of the NPUs	npu-smi is not installed, or does not answer"; fi
  cards=$(printf '%s\n' "$state" | awk -F '|' '$3 ~ /^ *[A-Za-z]+ *$/ && $2 ~ /^ *[0-9]+ +[^ ]+ *$/ {
    split($2, part, " "); health = $3; gsub(/ /, "", health); print part[1], health}')
  chips=$(printf '%s\n' "$cards" | grep -c .)
  printf '%s\n' "$cards" | sort -u | while read -r card health; do
    if [ -z "$card" ]; then continue; fi
    if [ "$health" != OK ]; then
      why=$(asks 10 npu-smi info -t health -i "$card" | awk -F ': *' '
        /Error (Code|Information)/ && $2 != "NA" {printf "%s%s", n++ ? "; " : "", $2}')
      say device "$card	alarm	$health${why:+: $why}"
    fi
    if state=$(asks 10 npu-smi info -t ecc -i "$card"); then
      printf '%s\n' "$state" | awk -F ' *: *' -v name="$card" '/Double Bit Error Count/ {errors += $2; told = 1}
        /Double Bit Isolated Pages Count/ {pages += $2}
        END {if (told) print "device\t" name "\tmemory_errors\t" errors
          if (pages) print "device\t" name "\tisolated_pages\t" pages; exit !told}'
    else false; fi || say cannot "memory errors of the NPUs	npu-smi info -t ecc does not tell"
  done | awk '!said[$0]++'
  PATH=$PATH:/usr/local/Ascend/driver/tools
  device=0
  while [ "$device" -lt "$chips" ]; do
    state=$(asks 10 hccn_tool -i "$device" -link -g)
    case $state in
      *'link status:'*) say device "$device	link	${state##*link status: }" ;;
      *) say cannot "links of the NPUs	hccn_tool is not installed, or does not answer"; break ;;
    esac
    device=$((device + 1))
  done
fi
"""
