"""The part of the health script that looks at Huawei's NPUs: a line `ascend<TAB>number<TAB>what<TAB>value` each.

Source: Huawei's documents of MindCluster: what npu-smi and hccn_tool print.
"""

SCRIPT = r"""
if [ -e "$root/dev/davinci_manager" ] || command -v npu-smi >/dev/null 2>&1; then
  if state=$(asks 20 npu-smi info); then
    driver=${state#*Version: }; say version "npu-smi ${driver%%[ |]*}"
  else state=; say blind "state of the NPUs	npu-smi is not installed, or does not answer"; fi
  cards=$(printf '%s\n' "$state" | awk -F '|' '$3 ~ /^ *[A-Za-z]+ *$/ && $2 ~ /^ *[0-9]+ +[^ ]+ *$/ {
    split($2, part, " "); health = $3; gsub(/ /, "", health); print part[1], health}')
  chips=$(printf '%s\n' "$cards" | grep -c .)
  if [ -n "$state" ] && [ "$chips" = 0 ]; then say blind "state of the NPUs	npu-smi info shows none"; fi
  printf '%s\n' "$cards" | sort -u | while read -r card health; do
    if [ -z "$card" ]; then continue; fi
    if [ "$health" != OK ]; then
      why=$(asks 10 npu-smi info -t health -i "$card" | awk -F ': *' '
        /Error (Code|Information)/ && $2 != "NA" {printf "%s%s", n++ ? "; " : "", $2}')
      say ascend "$card	alarm	$health${why:+: $why}"
    fi
    if state=$(asks 10 npu-smi info -t ecc -i "$card"); then
      printf '%s\n' "$state" | awk -F ' *: *' -v name="$card" '/Double Bit Error Count/ {errors += $2; told = 1}
        /Double Bit Isolated Pages Count/ {pages += $2}
        END {if (told) print "ascend\t" name "\tmemory_errors\t" errors
          if (pages) print "ascend\t" name "\tisolated_pages\t" pages; exit !told}'
    else false; fi || say blind "memory errors of the NPUs	npu-smi info -t ecc does not tell"
  done | awk '!said[$0]++'
  PATH=$PATH:/usr/local/Ascend/driver/tools
  device=0
  while [ "$device" -lt "$chips" ]; do
    state=$(asks 10 hccn_tool -i "$device" -link -g)
    case $state in
      *'link status:'*) say ascend "$device	link	${state##*link status: }" ;;
      *) say blind "links of the NPUs	hccn_tool is not installed, or does not answer"; break ;;
    esac
    device=$((device + 1))
  done
fi
"""
