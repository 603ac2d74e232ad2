# The init of a test host: gives it a root file system, /root, /tmp, /run, /proc, /sys and a name of its own, and then
# reaps. Started in fresh mount, UTS, IPC and PID namespaces and in the host's network namespace.
# Arguments: folder, host name, then the absolute paths the host sees as they are on the machine: read-only, or after
# `rw:` as on a file system that all share.
set -eu
folder=$1
name=$2
shift 2
read -r pid _ </proc/self/stat # in the outer /proc: the process id outside
cd "$folder"
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
mount --rbind /dev root/dev
mount -t tmpfs -o mode=1777 tmpfs root/dev/shm
mount -t proc proc root/proc
# A host that was reset has another boot id than the machine.
[ ! -f boot_id ] || mount --bind boot_id root/proc/sys/kernel/random/boot_id
mount -t sysfs sysfs root/sys
mount --rbind /sys/fs/cgroup root/sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs root/run
mkdir -p root/run/sshd root/run/lock root/var/lib/docker root/var/tmp root/.outer
mount --bind home root/root
mount --bind tmp root/tmp
mount --bind vartmp root/var/tmp
mount --bind docker root/var/lib/docker
for path in "$@"; do
    mode=ro
    case $path in rw:*) mode=rw path=${path#rw:} ;; esac
    mkdir -p "root$path"
    mount --rbind "$path" "root$path"
    mount -o "remount,bind,$mode" "root$path"
done
echo "$name" >/proc/sys/kernel/hostname
cd root
pivot_root . .outer
cd /
umount -l /.outer
rmdir /.outer
echo "$pid"
exec >/dev/null
while :; do
    sleep 86400 &
    wait
done
