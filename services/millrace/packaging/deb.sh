#!/usr/bin/env bash
# Builds a Debian package of a program that is built already: `make deb`.
#
#   deb.sh MILLRACE FOLDER [VERSION]       writes FOLDER/millrace_VERSION_ARCHITECTURE.deb
# DEB_COMPRESSION=none is for tests: packing takes longer than they do.
set -euo pipefail
# Everybody may read what is installed, also if new files of the person who builds it are private.
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
millrace=$1 folder=$2
version=${3:-$("$millrace" -V | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
# It becomes "./" of the archive, whose mode `dpkg-deb --extract` gives to the folder that it extracts to.
chmod 0755 "$stage"
trap 'rm -rf "$stage"' EXIT

"$here/stage.sh" "$millrace" "$stage"
install -D -m 0644 "$here/millrace.service" "$stage/usr/lib/systemd/system/millrace.service"
install -D -m 0644 "$here/sysusers.conf" "$stage/usr/lib/sysusers.d/millrace.conf"
mkdir -p "$stage/etc/millrace"
{
    echo '# Settings of the service millrace. After a change: millrace config check --config /etc/millrace/millrace.toml'
    echo '# and systemctl restart millrace. Every setting: /usr/share/doc/millrace/millrace.toml.example'
    echo
    echo 'data_dir = "/var/lib/millrace"'
} >"$stage/etc/millrace/millrace.toml"

mkdir "$stage/DEBIAN"
install -m 0755 "$here/debian/postinst" "$here/debian/prerm" "$here/debian/postrm" "$stage/DEBIAN/"
echo /etc/millrace/millrace.toml >"$stage/DEBIAN/conffiles"
# The newest interface of libc that the program uses: one that is built on a newer Debian may need more than Debian 12 has.
libc=$(objdump -T "$millrace" | grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -1)
libraries="libc6 (>= ${libc#GLIBC_}), libgcc-s1"
if "$millrace" --version | grep -q '^features:.*foundationdb'; then libraries+=", foundationdb-clients (>= 7.4)"; fi
cat >"$stage/DEBIAN/control" <<CONTROL
Package: millrace
Version: $version
Architecture: $architecture
Maintainer: The Millrace developers <maintainers@millrace.invalid>
Section: net
Priority: optional
Depends: $libraries, systemd | systemd-standalone-sysusers, init-system-helpers (>= 1.54)
Recommends: ca-certificates
Installed-Size: $(du -sk "$stage" | cut -f1)
Description: MQTT broker for MQTT 3.1, 3.1.1 and 5.0
 Millrace keeps sessions, queues and retained messages on disk, and acknowledges
 a message when it is stored. One process serves a machine; several share a
 FoundationDB cluster.
CONTROL
(cd "$stage" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$folder"
dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$stage" "$folder/millrace_${version}_${architecture}.deb" >/dev/null
echo "$folder/millrace_${version}_${architecture}.deb"
