#!/usr/bin/env bash
# Starts the image's program in the image's own file system, as its own user, and keeps a message over a restart.
#
#   image_test.sh MILLRACE       needs root and buildah; listens on free ports of 127.0.0.1
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
millrace=$1
skip() { echo "SKIPPED: the image: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "only root can enter its file system"
for program in buildah mosquitto_pub mosquitto_sub; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
work=$(mktemp -d)
container='' image='' pid=''

clean() {
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    [ -z "$container" ] || buildah rm "$container" >/dev/null || true
    [ -z "$image" ] || buildah rmi "$image" >/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

fail() {
    echo "FAILED: $1" >&2
    [ ! -e "$work/log" ] || tail -5 "$work/log" >&2
    exit 1
}

# The image's settings, with other listeners: ports that are free, on this machine alone.
start() {
    # Otherwise the loop below would find the address of the run before.
    : >"$work/log"
    env -i "${settings[@]}" MILLRACE_MQTT_LISTEN=127.0.0.1:0 MILLRACE_WS_LISTEN=off MILLRACE_HTTP_LISTEN=127.0.0.1:0 \
        MILLRACE_ADMIN_LISTEN=127.0.0.1:0 MILLRACE_ALLOW_ANONYMOUS=true \
        "$(command -v chroot)" --userspec="$user" "$root" "$entrypoint" serve >>"$work/log" 2>&1 &
    pid=$!
    local end=$((SECONDS + 60))
    until port=$(sed -nE 's|.*mqtt://127\.0\.0\.1:([0-9]+).*|\1|p' "$work/log" | head -1) && [ -n "$port" ]; do
        kill -0 "$pid" 2>/dev/null || fail "the program ended"
        [ "$SECONDS" -lt "$end" ] || fail "the program does not listen"
        sleep 0.2
    done
}

stop() {
    kill -TERM "$pid"
    wait "$pid" || fail "the program ended with $? at SIGTERM"
    pid=''
}

"$here/image.sh" "$millrace" "$work/image.tar" >/dev/null
container=$(buildah from --quiet "oci-archive:$work/image.tar")
image=$(buildah inspect --type container --format '{{.FromImageID}}' "$container")
root=$(buildah mount "$container")
user=$(buildah inspect --type container --format '{{.OCIv1.Config.User}}' "$container")
entrypoint=$(buildah inspect --type container --format '{{index .OCIv1.Config.Entrypoint 0}}' "$container")
mapfile -t settings < <(buildah inspect --type container --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$container" | grep '=')
[ "${user%%:*}" = 65532 ] || fail "the image's user is $user"

start
mosquitto_pub -h 127.0.0.1 -p "$port" -q 1 -r -t image/test -m kept || fail "no message is taken"
stop
[ -n "$(ls -A "$root/var/lib/millrace")" ] || fail "the volume /var/lib/millrace is empty"
start
[ "$(mosquitto_sub -h 127.0.0.1 -p "$port" -t image/test -C 1 -W 60)" = kept ] || fail "the message is lost at a restart"
stop
echo "image: ok"
