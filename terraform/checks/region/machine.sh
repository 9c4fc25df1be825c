#!/usr/bin/env bash
# Boots systemd of a root file system in namespaces of its own, as a container does. Ends when the machine is shut down.
#
#   machine.sh NAME FOLDER ROOTFS       FOLDER/seed is laid over the root file system; changes go to FOLDER/upper; each link in
#                                       FOLDER/disks is a disk, by the name that udev gives it
set -euo pipefail

name=$1 folder=$2 rootfs=$3

if [ "${4:-}" != inside ]; then
    mkdir -p "$folder"/{upper,work,root,cgroup}
    # A tree of control groups for each machine, or their systemds would share one.
    mountpoint -q "$folder/cgroup" || mount -t cgroup2 none "$folder/cgroup"
    mkdir -p "$folder/cgroup/millrace-$name"
    echo $$ >"$folder/cgroup/millrace-$name/cgroup.procs"
    exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child --propagation private "$0" "$name" "$folder" "$rootfs" inside
fi

hostname "$name"
root=$folder/root
mount -t overlay -o "lowerdir=$rootfs,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"
cp -r "$folder/seed/." "$root/"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "$root/dev/${number#*:}"; done
if [ -d "$folder/disks" ]; then
    mkdir -p "$root/dev/disk/by-id"
    for disk in "$folder/disks/"*; do
        touch "$root/dev/disk/by-id/${disk##*/}"
        mount --bind "$(readlink "$disk")" "$root/dev/disk/by-id/${disk##*/}"
    done
fi

cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
exec env -i container=millrace PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
    /lib/systemd/systemd --system --show-status=no --log-target=journal </dev/null
