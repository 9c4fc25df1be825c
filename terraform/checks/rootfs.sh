#!/usr/bin/env bash
# Makes a Debian 12 root file system with systemd and cloud-init in target/deploy/rootfs, as a cloud image has them.
# The checks put an overlay over it, so it stays as it is.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rootfs=${CARGO_TARGET_DIR:-$root/target}/deploy/rootfs
# Raised when the packages below change.
edition=1

# Two runs at once would remove each other's files. The second one finds what the first has made.
mkdir -p "${rootfs%/*}"
exec 9>"$rootfs.lock"
flock 9
[ "$(cat "$rootfs/.edition" 2>/dev/null)" != "$edition" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "SKIPPED: a root file system needs root"; exit 3; }
command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap >/dev/null 2>&1 \
    || { echo "SKIPPED: debootstrap is not installed"; exit 3; }

# An interrupted debootstrap leaves its /proc and /sys mounted there.
for mounted in proc sys; do umount "$rootfs/$mounted" 2>/dev/null || true; done
rm -rf --one-file-system "$rootfs"
mkdir -p "$rootfs"
nice -n 10 debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,curl,ca-certificates,openssl,iproute2,procps \
    bookworm "$rootfs" >"$rootfs.log" 2>&1
# Nothing starts while packages are installed.
printf '#!/bin/sh\nexit 101\n' >"$rootfs/usr/sbin/policy-rc.d"
chmod +x "$rootfs/usr/sbin/policy-rc.d"
DEBIAN_FRONTEND=noninteractive nice -n 10 chroot "$rootfs" apt-get install -y -qq --no-install-recommends \
    python3 cloud-init e2fsprogs >>"$rootfs.log" 2>&1
rm "$rootfs/usr/sbin/policy-rc.d"
chroot "$rootfs" apt-get clean
echo "$edition" >"$rootfs/.edition"
