# The init of a Docker engine without a host around it: own mounts, process ids and /run, the machine's file system and
# network. Argument: its folder, which only tells it from others.
set -eu
read -r pid _ </proc/self/stat # in the outer /proc: the process id outside
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/lock
echo "$pid"
exec >/dev/null
while :; do
    sleep 86400 &
    wait
done
