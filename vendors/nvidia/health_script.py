"""The part of the health script that looks at NVIDIA's GPUs: their driver's files, and nvidia-smi.

Sources: NVIDIA, nvidia-smi (1), and "GPUDirect RDMA" (dma_buf needs the open kernel modules).
"""

SCRIPT = r"""
if [ -d "$root/sys/module/nvidia" ] && [ -e "$root/dev/nvidia-nvswitchctl" ]; then
  if ! command -v pgrep >/dev/null 2>&1; then say cannot "fabric manager	no pgrep"
  elif pgrep -x nv-fabricmanage >/dev/null 2>&1; then say fabric up; else say fabric down; fi
fi
if [ -d "$root/sys/module/nvidia" ] && [ -n "$(ls "$root/sys/class/infiniband" 2>/dev/null)" ]; then
  if [ -d "$root/sys/module/nvidia_peermem" ]; then say rdma_memory nvidia_peermem
  elif ! grep -q . "$root/proc/kallsyms" 2>/dev/null; then say cannot "RDMA to GPU memory	no /proc/kallsyms"
  elif ! grep -qw ib_umem_dmabuf_get "$root/proc/kallsyms" 2>/dev/null; then say rdma_memory kernel
  elif ! grep -q 'Open Kernel Module' "$root/proc/driver/nvidia/version" 2>/dev/null; then say rdma_memory driver
  else say rdma_memory dma_buf; fi
fi
if [ -d "$root/sys/module/nvidia" ] || [ -e /dev/nvidiactl ]; then
  gpus() { # by the name of the reasons for low clocks, which is another one in drivers before 535
    asked=index,persistence_mode,power.limit,power.default_limit,clocks.applications.graphics
    asked=$asked,clocks.default_applications.graphics,$1.hw_slowdown,$1.applications_clocks_setting
    asks 20 nvidia-smi --query-gpu="$asked,ecc.errors.uncorrected.volatile.total" --format=csv,noheader,nounits
  }
  if state=$(gpus clocks_event_reasons) || state=$(gpus clocks_throttle_reasons); then
    printf '%s\n' "$state" | sed 's/^/gpu	/'
  else say blind "state of the GPUs	nvidia-smi is not installed, or does not answer"; fi
  asked=gpu_bus_id,remapped_rows.pending,remapped_rows.failure
  if state=$(asks 20 nvidia-smi --query-remapped-rows="$asked" --format=csv,noheader); then
    printf '%s\n' "$state" | sed 's/^/rows	/'
  else say blind "remapped rows of the GPUs	nvidia-smi does not tell"; fi
  asked=gpu_bus_id,fabric.state,fabric.status,fabric.cliqueId,fabric.clusterUuid
  if state=$(asks 20 nvidia-smi --query-gpu="$asked" --format=csv,noheader); then
    printf '%s\n' "$state" | sed 's/^/nvlink_fabric	/'
  else say cannot "NVLink fabric	nvidia-smi does not tell"; fi
  state=$(asks 20 nvidia-smi nvlink -s) || case $state in
    GPU*) ;;
    *) state=; say blind "NVLinks	nvidia-smi nvlink -s does not answer" ;;
  esac
  printf '%s\n' "$state" | awk '/^GPU/ {gpu = $2 + 0; seen[gpu] = 1}
    /all links are in[Aa]ctive/ {down[gpu]++} /Link [0-9]+: / {
    if (/inactive/) down[gpu]++; else if (/GB\/s/) up[gpu]++}
    END {for (gpu in seen) {print "nvlinks\t" gpu "\t" up[gpu] + 0 "\t" down[gpu] + 0; all++; if (up[gpu]) linked++}
      if (all) print "setting\tGPUs with NVLinks\t" linked + 0}'
  if state=$(asks 20 nvidia-smi nvlink -e); then :
  else state=; say cannot "errors of NVLinks	nvidia-smi nvlink -e does not answer"; fi
  # Up to Hopper, and from Blackwell on: what forward error correction mended (FEC, CRC) is no error of a link.
  printf '%s\n' "$state" | awk '/^GPU/ {gpu = $2 + 0}
    /Link [0-9]+: / {links++}
    /Link [0-9]+: (Replay|Recovery|Rx|Rx remote|Rx General|Effective|Symbol|Local link integrity) Errors: [0-9]+ *$/ ||
    /Link [0-9]+: (Malformed packet|Buffer overrun) Errors: [0-9]+ *$/ ||
    /Link [0-9]+: (Tx discards|Link recovery (successful|failed) events): [0-9]+ *$/ {errors[gpu] += $NF; known++}
    END {for (gpu in errors) print "nvlink_errors\t" gpu "\t" errors[gpu]
      if (links && !known) print "cannot\terrors of NVLinks\tnvidia-smi nvlink -e has none of the known counters"}'
  asks 20 nvidia-smi --query-gpu=name,vbios_version --format=csv,noheader |
    awk -F ', ' 'NF == 2 {print "firmware\tVBIOS of " $1 "\t" $2; told = 1} END {exit !told}' ||
    say cannot "VBIOS of the GPUs	nvidia-smi does not tell"
fi
"""
