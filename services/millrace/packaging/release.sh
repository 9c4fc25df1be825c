#!/usr/bin/env bash
# Makes a release of a program that is built already: tarball, package, list of components (CycloneDX), checksums.
#
#   release.sh MILLRACE FOLDER
set -euo pipefail
# Everybody may read what is installed, also if new files of the person who builds it are private.
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
millrace=$1 folder=$2
version=$("$millrace" -V | cut -d' ' -f2)
name=millrace-$version-$(uname -m)-linux
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

mkdir -p "$folder"
"$here/stage.sh" "$millrace" "$stage/$name" ''
install -m 0644 "$here/millrace.service" "$root/LICENSE" "$root/README.md" "$stage/$name/"
# The same contents give the same archive.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$stage" -c "$name" |
    gzip -9n >"$folder/$name.tar.gz"
"$here/deb.sh" "$millrace" "$folder" >/dev/null
"$here/sbom.py" "$root" "$root/services/console" "$("$millrace" --version | sed -n 's/^features: //p')" >"$folder/$name.cdx.json"
(cd "$folder" && sha256sum "$name.tar.gz" "$name.cdx.json" "millrace_${version}_"*.deb >SHA256SUMS)
cat "$folder/SHA256SUMS"
