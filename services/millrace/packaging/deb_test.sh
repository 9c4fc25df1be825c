#!/usr/bin/env bash
# Installs, starts, upgrades, removes and purges the package on a Debian with systemd: `make check-deb`.
#
#   deb_test.sh MILLRACE
#
# The system is a root file system of debootstrap in namespaces of its own, booted by its real systemd.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/deploy/deb
checks=$root/terraform/checks
millrace=$1
machine=

fail() {
    echo "FAILED: $1" >&2
    inside journalctl --no-pager -n 20 -u millrace 2>/dev/null | sed 's/^/journal: /' >&2
    exit 1
}

skip() {
    echo "SKIPPED: the Debian package: $1"
    exit 0
}

clean() {
    # A part of the machine that is gone already must not change the result.
    set +e
    [ -z "$machine" ] || kill "$machine" 2>/dev/null
    echo 1 >"$work/machine/cgroup/millrace-deb/cgroup.kill" 2>/dev/null
    wait 2>/dev/null
    find "$work/machine/cgroup/millrace-deb" -depth -type d -exec rmdir {} + 2>/dev/null
    umount "$work/machine/cgroup" 2>/dev/null
    rmdir "$work/machine/cgroup" 2>/dev/null
    true
}

# The first process of the machine.
init() { head -1 "$work/machine/cgroup/millrace-deb/init.scope/cgroup.procs" 2>/dev/null; }

inside() { nsenter --target "$(init)" --mount --pid --net --uts --ipc --cgroup --root --wdns=/ -- "$@"; }

until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "not in time: $what"
        sleep 0.2
    done
}

is_running() { [ "$(inside systemctl is-active millrace)" = active ]; }

main_pid() { inside systemctl show --property MainPID --value millrace; }

# The clients are this machine's, in the network of the other one.
mqtt() { nsenter --target "$(init)" --net -- "$@"; }

expect() {
    local what=$1 expected=$2
    shift 2
    local found
    found=$("$@" 2>&1) || true
    grep -q -- "$expected" <<<"$found" || fail "$what: expected \"$expected\", found: $found"
    echo "deb: $what: ok"
}

install_package() { inside env DEBIAN_FRONTEND=noninteractive dpkg --force-confold --install "/packages/millrace_$1_$(dpkg --print-architecture).deb"; }

[ "$(id -u)" = 0 ] || skip "it boots a system in namespaces, so it needs root"
for program in mosquitto_pub mosquitto_sub nsenter dpkg-deb; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done
"$checks/rootfs.sh" || { [ $? = 3 ] && skip "no root file system"; echo "FAILED: the root file system: $target/deploy/rootfs.log" >&2; exit 1; }

trap clean EXIT
umount "$work/machine/cgroup" 2>/dev/null || true
# Never into a mount that was left behind.
rm -rf --one-file-system "$work"
mkdir -p "$work/machine/seed/packages"
DEB_COMPRESSION=none "$here/deb.sh" "$millrace" "$work/machine/seed/packages" 1.0.0 >/dev/null
DEB_COMPRESSION=none "$here/deb.sh" "$millrace" "$work/machine/seed/packages" 1.1.0 >/dev/null
# No cloud here.
mkdir -p "$work/machine/seed/etc/cloud"
touch "$work/machine/seed/etc/cloud/cloud-init.disabled"
unshare --net "$checks/region/machine.sh" deb "$work/machine" "$target/deploy/rootfs" >"$work/machine.log" 2>&1 &
machine=$!
until_true 60 "systemd runs" inside systemctl is-system-running --wait
until_true 60 "systemd answers" inside systemctl list-units
inside ip link set lo up

install_package 1.0.0 >"$work/install.log" 2>&1 || { tail -5 "$work/install.log"; fail "dpkg --install"; }
until_true 60 "the service is ready" is_running
expect "it runs as its own user" '^millrace$' inside ps -o user= -p "$(main_pid)"
expect "its settings are not for everybody" '640 root millrace' inside stat -c '%a %U %G' /etc/millrace/millrace.toml
expect "its data is not for everybody" '700 millrace millrace' inside stat -c '%a %U %G' /var/lib/millrace
echo "deb: systemd-analyze security: $(inside systemd-analyze security --no-pager millrace.service | tail -1)"

mqtt mosquitto_sub -h 127.0.0.1 -i pump-7 -c -q 1 -t 'cmd/#' -E
mqtt mosquitto_pub -h 127.0.0.1 -q 1 -t cmd/pump-7 -m queued
mqtt mosquitto_pub -h 127.0.0.1 -q 1 -r -t state/pump-7 -m retained
echo "deb: published one message for an absent session, and one retained"

# As runbooks/backup-restore.md says, with the packaged unit as it is.
backups=/var/lib/millrace-backups
as_millrace() { inside runuser -u millrace -- millrace "$@"; }
expect "the backups are not for everybody" '700 millrace millrace' inside stat -c '%a %U %G' "$backups"
expect "a running server backs itself up" "Made $backups/monday" as_millrace backup "$backups/monday" --data-dir /var/lib/millrace
expect "a backup to another folder is refused" 'cannot be written to' as_millrace backup /srv/monday --data-dir /var/lib/millrace
expect "a backup in the service's own /tmp is no backup" 'only its service sees' as_millrace backup /tmp/monday --data-dir /var/lib/millrace
expect "the backup is restored" "Made $backups/restored" as_millrace restore "$backups/monday" --data-dir "$backups/restored"
expect "its session is in the restored folder" pump-7 as_millrace sessions list --data-dir "$backups/restored"
# shellcheck disable=SC2016 # the page's dollar
nightly=$(sed -n 's/^17 3 \* \* \* millrace //p' "$root/terraform/ONE-MACHINE.md" | sed 's/$(date +\\%u)/3/')
for night in first second; do
    inside runuser -u millrace -- sh -c "$nightly" || fail "the $night nightly backup of ONE-MACHINE.md"
done
expect "the nightly backup replaces the one of its weekday" '^3 monday restored $' inside sh -c "ls $backups | tr '\n' ' '"
mqtt mosquitto_pub -h 127.0.0.1 -q 1 -r -t state/later -m later

# The page's commands, by an operator who types the password. There is no sudo here.
# shellcheck disable=SC2016 # for the machine's bash, and the page's backticks
{
    echo 'sudo() { if [ "$1" = -u ]; then runuser -u "$2" -- "${@:3}"; else "$@"; fi; }'
    sed -n '/^### Let devices in$/,/^Open the ports/{/^```sh$/,/^```$/{/^```/!p}}' "$root/terraform/ONE-MACHINE.md"
} >"$work/page.sh"
grep -q 'tls_dir' "$work/page.sh" || fail "ONE-MACHINE.md has another form"
inside tee /root/page.sh <"$work/page.sh" >/dev/null
inside bash -e /root/page.sh <<<secret-7 >"$work/page.log" 2>&1 || { tail -5 "$work/page.log"; fail "the page's commands"; }
until_true 60 "the service is ready" is_running
inside cat /etc/millrace/tls/ca.crt >"$work/ca.crt"
secure() { mqtt mosquitto_pub -h localhost -p 8883 --cafile "$work/ca.crt" -u pump-7 -P "$1" -q 1 -t plant/hello -m hi; }
secure secret-7 || fail "a device with the page's user does not get in over TLS"
! secure another 2>/dev/null || fail "a wrong password gets in"
expect "the console's link is in the journal" 'Console: http://127.0.0.1:8080/' inside journalctl --no-pager -u millrace
inside sed -i '/^mqtts_listen/d; /^wss_listen/d; /^tls_dir/d; /^password_file/d' /etc/millrace/millrace.toml
inside systemctl restart millrace
until_true 60 "the service is ready" is_running
echo "deb: the page's commands let a device in over TLS, and no other"

# The page's commands for a cloud's machine.
# shellcheck disable=SC2016 # the backticks are the page's
{
    echo 'sudo() { "$@"; }'
    sed -n '/^On a cloud/,/^## /{/^```sh$/,/^```$/{/^```/!p}}' "$root/terraform/ONE-MACHINE.md"
} >"$work/metadata.sh"
grep -q IPAddressDeny "$work/metadata.sh" || fail "ONE-MACHINE.md has another form"
inside ip address add 169.254.169.254/32 dev lo
# As in the service's control group, which is what systemd's filter looks at.
of_service() { inside sh -c "echo \$\$ >/sys/fs/cgroup/system.slice/millrace.service/cgroup.procs && exec $*"; }
reaches() { of_service "timeout 5 bash -c ': >/dev/tcp/169.254.169.254/$1'"; }
inside sh -c 'printf "mqtt_listen = [\"127.0.0.1:1883\", \"169.254.169.254:1885\"]\nallow_anonymous = true\n" >>/etc/millrace/millrace.toml && systemctl restart millrace'
until_true 60 "the service is ready" is_running
reaches 1885 || fail "the stand-in for the metadata service does not answer"
inside tee /root/metadata.sh <"$work/metadata.sh" >/dev/null
inside bash -e /root/metadata.sh >"$work/metadata.log" 2>&1 || { tail -5 "$work/metadata.log"; fail "the page's commands for a cloud's machine"; }
until_true 60 "the service is ready" is_running
! reaches 1885 2>/dev/null || fail "the service reaches the metadata service"
mqtt mosquitto_pub -h 127.0.0.1 -t cloud -m up || fail "a client does not get in"
inside sed -i '/^mqtt_listen/d; /^allow_anonymous/d' /etc/millrace/millrace.toml
inside rm /etc/systemd/system/millrace.service.d/metadata.conf
inside sh -c 'systemctl daemon-reload && systemctl restart millrace'
until_true 60 "the service is ready" is_running
echo "deb: the page's commands keep the service from a cloud's metadata service"

# A process that turns no more is killed by the watchdog and started again.
inside mkdir -p /etc/systemd/system/millrace.service.d
inside sh -c 'printf "[Service]\nWatchdogSec=3\n" >/etc/systemd/system/millrace.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart millrace'
until_true 60 "the service is ready" is_running
stuck=$(main_pid)
inside kill -STOP "$stuck"
is_another() { [ "$(main_pid)" != "$stuck" ] && is_running; }
until_true 60 "the watchdog starts a stuck server again" is_another
expect "systemd names the watchdog" 'Watchdog timeout' inside journalctl --no-pager -u millrace

# A drain that takes longer than the unit's limit ends in order, because the server asks for the time.
metric() { mqtt curl -fs http://127.0.0.1:8090/metrics | sed -n "s/^$1 //p"; }
has_clients() { [ "$(metric millrace_connections_open)" = "$1" ]; }
inside sh -c 'printf "[Service]\nTimeoutStopSec=1\n" >/etc/systemd/system/millrace.service.d/stop.conf && systemctl daemon-reload'
printf 'drain_rate = 1\n' | inside tee -a /etc/millrace/millrace.toml >/dev/null
inside systemctl restart millrace
until_true 60 "the service is ready" is_running
clients=()
for number in 1 2 3 4; do
    mqtt mosquitto_sub -V 5 -h 127.0.0.1 -i "drained-$number" -t drained >"$work/drained-$number.log" 2>&1 &
    clients+=($!)
done
until_true 60 "four clients are connected" has_clients 4
inside systemctl stop millrace
kill "${clients[@]}" 2>/dev/null || true
wait "${clients[@]}" 2>/dev/null || true
expect "the server drained its clients" 'draining.*per_second=1$' inside journalctl --no-pager -u millrace
expect "systemd waited for the drain" '^success$' inside systemctl show --property Result --value millrace
inside sed -i '/^drain_rate/d' /etc/millrace/millrace.toml
inside rm /etc/systemd/system/millrace.service.d/stop.conf
inside sh -c 'systemctl daemon-reload && systemctl start millrace'
until_true 60 "the service is ready" is_running

echo '# a line of the operator' | inside tee -a /etc/millrace/millrace.toml >/dev/null
before=$(main_pid)
install_package 1.1.0 >"$work/upgrade.log" 2>&1 || { tail -5 "$work/upgrade.log"; fail "the upgrade"; }
is_upgraded() { [ "$(main_pid)" != "$before" ] && is_running; }
until_true 60 "the upgrade restarts the service" is_upgraded
expect "the upgrade keeps the settings" 'a line of the operator' inside cat /etc/millrace/millrace.toml
expect "the retained message after the upgrade" retained mqtt mosquitto_sub -h 127.0.0.1 -t state/pump-7 -C 1 -W 60
expect "settings are checked before the start" 'the settings are allowed' inside millrace config check --config /etc/millrace/millrace.toml
expect "manual" 'millrace-serve' inside sh -c 'ls /usr/share/man/man1'

# An operator may have other modes, or settings by environment variables alone and no file.
inside chmod 0600 /etc/millrace/millrace.toml
inside chown millrace /etc/millrace/millrace.toml
install_package 1.1.0 >"$work/modes.log" 2>&1 || { tail -5 "$work/modes.log"; fail "an upgrade after other modes"; }
expect "an upgrade keeps the modes of the operator" '600 millrace' inside stat -c '%a %U' /etc/millrace/millrace.toml
inside mv /etc/millrace/millrace.toml /root/
install_package 1.1.0 >"$work/removed.log" 2>&1 || { tail -5 "$work/removed.log"; fail "an upgrade fails where the operator has removed the settings"; }
inside mv /root/millrace.toml /etc/millrace/
inside systemctl restart millrace
until_true 60 "the service is ready" is_running

inside dpkg --remove millrace >"$work/remove.log" 2>&1 || fail "dpkg --remove"
is_gone() { ! is_running; }
until_true 60 "the service stops at removal" is_gone
has_data() { inside ls -A /var/lib/millrace | grep -q . && inside ls -A "$backups/monday" | grep -q .; }
has_data || fail "removal took the data"
echo "deb: removal keeps the data and the backup"
inside dpkg --purge millrace >"$work/purge.log" 2>&1 || fail "dpkg --purge"
has_data || fail "purge took the data"
for kept in /var/lib/millrace "$backups" /etc/millrace; do
    grep -q "$kept is kept" "$work/purge.log" || fail "purge does not say that $kept is kept"
done
inside test -e /etc/millrace/tls/tls.key || fail "purge took a key that the package did not make"
! inside test -e /etc/millrace/millrace.toml || fail "purge left the settings"
echo "deb: purge takes the settings and keeps the data"

install_package 1.1.0 >"$work/again.log" 2>&1 || { tail -5 "$work/again.log"; fail "the second installation"; }
until_true 60 "the service is ready" is_running
expect "the queued message after all that" queued mqtt mosquitto_sub -h 127.0.0.1 -i pump-7 -c -q 1 -t 'cmd/#' -C 1 -W 60
expect "a retained message of after the backup" later mqtt mosquitto_sub -h 127.0.0.1 -t 'state/later' -C 1 -W 60

inside systemctl stop millrace
inside mv /var/lib/millrace /var/lib/millrace-before
inside mv "$backups/restored" /var/lib/millrace
inside systemctl start millrace
until_true 60 "the restored service is ready" is_running
expect "the session of the backup has its message again" queued mqtt mosquitto_sub -h 127.0.0.1 -i pump-7 -c -q 1 -t 'cmd/#' -C 1 -W 60
as_millrace retained list 'state/#' --data-dir /var/lib/millrace >"$work/retained.log" 2>&1 || fail "retained messages cannot be listed"
grep -q state/pump-7 "$work/retained.log" || fail "the retained message of the backup is gone"
! grep -q state/later "$work/retained.log" || fail "the restored folder has a message of after the backup"
echo "deb: the restored folder has what the backup had, and nothing later"
echo "check-deb: passed"
