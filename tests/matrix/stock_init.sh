# Runs a command as a user without rights in a root file system of its own: the init of a stock system.
# Started in fresh mount and PID namespaces, and in a network namespace with nothing but a loopback, or the machine's.
# Arguments: root folder, user and group id, working directory, then the command.
set -eu
root=$1
user=$2
directory=$3
shift 3
users_path=$PATH
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
mount --bind "$root" "$root"
cd "$root"
mkdir -p proc sys dev tmp run .outer
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
pivot_root . .outer
cd /
umount -l /.outer
cd "$directory"
PATH=$users_path exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs nohup "$@"
