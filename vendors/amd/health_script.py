"""The part of the health script that looks at AMD's accelerators: a line `amd<TAB>address<TAB>what<TAB>value` each.

Sources: Linux, "GPU Driver Documentation", amdgpu: RAS, thermal controls, XGMI. ROCm, AMD SMI's changelog: what
`amd-smi metric --throttle` and `amd-smi xgmi --link-status` print.
"""

SCRIPT = r"""
gpus=0; counted=0; paged=0; linked=0
for device in "$root"/sys/bus/pci/devices/*; do
  level=$(value "$device/power_dpm_force_performance_level") || continue # amdgpu's
  name="${device##*/}"; gpus=$((gpus + 1))
  say amd "$name	clocks	$level"
  if bios=$(value "$device/vbios_version"); then say firmware "VBIOS	$bios"; fi
  for limit in "$device"/hwmon/hwmon*/power1_cap; do
    if [ -e "$limit" ]; then say amd "$name	power	$(value "$limit") $(value "${limit}_default")"; fi
  done
  if [ -d "$device/xgmi_hive_info" ]; then linked=$((linked + 1)); fi
  awk -v name="$name" '/^ue: *[0-9]+$/ {
      block = FILENAME; sub(/.*\//, "", block); sub(/_err_count/, "", block)
      what = block == "xgmi_wafl" ? "link_errors" : "memory_errors"; errors[what] += $2; told = 1}
    END {for (what in errors) print "amd\t" name "\t" what "\t" errors[what]; exit !told}' \
    "$device"/ras/*_err_count 2>/dev/null && counted=$((counted + 1))
  if [ -r "$device/ras/gpu_vram_bad_pages" ]; then
    paged=$((paged + 1))
    awk -v name="$name" '$NF == "P" {pending++} $NF == "F" {failed++}
      END {print "amd\t" name "\tpages\t" pending + 0 " " failed + 0}' "$device/ras/gpu_vram_bad_pages"
  fi
done
if [ "$gpus" -gt 0 ]; then
  say setting "GPUs in a hive of XGMI	$linked"
  if [ "$counted" = 0 ]; then say cannot "memory errors of the GPUs	amdgpu shows no ras/*_err_count"
  elif [ "$counted" != "$gpus" ]; then
    say blind "memory errors of the GPUs	amdgpu shows ras/*_err_count of $counted of $gpus"; fi
  if [ "$paged" = 0 ]; then say cannot "bad pages of the GPUs	amdgpu shows no ras/gpu_vram_bad_pages"
  elif [ "$paged" != "$gpus" ]; then
    say blind "bad pages of the GPUs	amdgpu shows ras/gpu_vram_bad_pages of $paged of $gpus"; fi
  if [ "$linked" -gt 1 ]; then unseen=blind; else unseen=cannot; fi
  asks 30 amd-smi xgmi --link-status | awk -v linked="$linked" '/^GPU[0-9]+ +[0-9a-fA-F]+:/ {
      up = down = 0; for (n = 3; n <= NF; n++) {if ($n == "U") up++; if ($n == "D") down++}
      if (up) told = 1; if (!($2 in links)) shown++; links[$2] = up "\t" down}
    END {if (told) for (gpu in links) print "xgmi\t" gpu "\t" links[gpu]
      if (told && shown < linked)
        print "blind\tXGMI links of the GPUs\tamd-smi xgmi shows " shown " of " linked " GPUs in a hive"
      exit !told}' ||
    say $unseen "XGMI links of the GPUs	amd-smi xgmi --link-status (ROCm 6.4 or newer) does not tell of one that is up"
  for option in --throttle --violation; do
    if state=$(asks 30 amd-smi metric "$option"); then break; fi
  done
  buses=$(asks 10 amd-smi list | awk '/^GPU: / {gpu = $2} $1 == "BDF:" {print "bus", gpu, $2}')
  printf '%s\n' "$buses" "$state" | awk '$1 == "bus" {bus[$2] = $3}
    /^GPU: / {gpu = $2 in bus ? bus[$2] : $2} /^ *[A-Z]+(_THERMAL)?_VIOLATION_(STATUS|ACTIVE): (NOT )?ACTIVE$/ {
      told = 1; if ($2 == "NOT") next
      why = $1; sub(/_VIOLATION.*/, "", why); print "amd\t" gpu "\tthrottled\t" why}
    END {exit !told}' || {
    say cannot "throttling of the GPUs	amd-smi metric does not tell"
    if [ "$counted" = 0 ]; then say blind "state of the GPUs	neither amdgpu nor amd-smi tells of errors"; fi; }
fi
"""
