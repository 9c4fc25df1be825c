#!/usr/bin/env bash
# Makes an OCI image with the program alone: no shell, no package manager. `make image`.
#
#   image.sh MILLRACE FILE       writes an OCI archive, for `podman load -i FILE` or `skopeo copy oci-archive:FILE ...`
set -euo pipefail

millrace=$1 file=$2
version=$("$millrace" -V | cut -d' ' -f2)
command -v buildah >/dev/null || { echo "no image is made: buildah is not installed (apt-get install buildah)" >&2; exit 1; }
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs

stage=$(mktemp -d)
container=$(buildah from scratch)
chmod 0755 "$stage"
trap 'buildah rm "$container" >/dev/null; rm -rf "$stage"' EXIT

install -D -m 0755 "$millrace" "$stage/usr/bin/millrace"
strip --strip-debug "$stage/usr/bin/millrace"
# The program's own libraries: libc and its loader, libgcc; and FoundationDB's client where it is built in.
ldd "$millrace" | sed -nE 's/.*(=> | )(\/[^ ]+) \(0x.*/\2/p; s/^\t(\/[^ ]+) \(0x.*/\1/p' | sort -u | while read -r library; do
    install -D -m 0755 "$(realpath "$library")" "$stage$library"
done
install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$stage/etc/ssl/certs/ca-certificates.crt"
printf 'millrace:x:65532:65532::/var/lib/millrace:/\n' >"$stage/etc/passwd"
printf 'millrace:x:65532:\n' >"$stage/etc/group"
mkdir -p "$stage/tmp" "$stage/var/lib"
chmod 1777 "$stage/tmp"
install -d -m 0700 -o 65532 -g 65532 "$stage/var/lib/millrace"

# With these files alone it must run.
chroot --userspec=65532:65532 "$stage" /usr/bin/millrace -V >/dev/null

# A copy by buildah would give all files to root, the data folder too.
cp -a "$stage/." "$(buildah mount "$container")/"
buildah umount "$container" >/dev/null
# A published port is open to others, so the server refuses to start until a setting says which clients may connect.
buildah config --user 65532:65532 --entrypoint '["/usr/bin/millrace"]' --cmd serve --workingdir /var/lib/millrace \
    --env MILLRACE_DATA_DIR=/var/lib/millrace --env MILLRACE_MQTT_LISTEN=0.0.0.0:1883 \
    --env MILLRACE_WS_LISTEN=0.0.0.0:8083 --env MILLRACE_HTTP_LISTEN=0.0.0.0:8080 \
    --env MILLRACE_ADMIN_LISTEN=0.0.0.0:8090 --port 1883 --port 8083 --port 8080 --port 8090 --volume /var/lib/millrace --stop-signal SIGTERM \
    --label org.opencontainers.image.title=millrace --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.revision=$("$millrace" --version | sed -n 's/^commit: //p')" \
    --label org.opencontainers.image.licenses=Apache-2.0 "$container"
mkdir -p "$(dirname "$file")"
rm -f "$file"
buildah commit --quiet "$container" "oci-archive:$file:millrace:$version" >/dev/null
echo "$file"
