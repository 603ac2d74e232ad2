#!/bin/sh
# Rehearses `apptainer exec`: takes options of its manual page, and runs a command in the prepared root that a .sif file
# names, with folders mounted in it. As apptainer's, its container has the caller's environment, home and /proc.
[ "$1" = exec ] || { echo "Error for command \"apptainer\": unknown command \"$1\"" >&2; exit 1; }
shift
folder=/ binds=
while :; do
  case $1 in
    --bind=*) binds=$binds,${1#--bind=} ;;
    --pwd=* | --cwd=*) folder=${1#--*=} ;;
    --env=*) export "${1#--env=}" ;;
    --nv | --rocm) ;;
    -*) echo "Error for command \"exec\": unknown flag: $1" >&2; exit 1 ;;
    *) break ;;
  esac
  shift
done
[ -f "$1" ] || { echo "FATAL:   could not open image $1: no such file or directory" >&2; exit 255; }
root=$(cat "$1")
shift
# shellcheck disable=SC2016  # the inner shell expands them
exec unshare --mount --propagation=private sh -c '
root=$1 folder=$2 IFS=,
for bind in $3; do
  [ -n "$bind" ] || continue
  target=${bind#*:} source=${bind%%:*}
  mkdir -p "$root$target" && mount --rbind "$source" "$root$target" || exit 255
done
shift 3
unset IFS
exec chroot "$root" sh -c "cd \"\$1\" && shift && exec \"\$@\"" sh "$folder" "$@"
' sh "$root" "$folder" "$binds" "$@"
