#!/usr/bin/env bash
# Uploads the programs that the machines install, and prints Terraform's variable `artifacts`.
#
#   terraform/artifacts.sh FOLDER                    prints the variable
#   terraform/artifacts.sh FOLDER BUCKET             uploads too
#
# FOLDER has: millrace_*.deb (make deb), foundationdb-clients_*.deb and foundationdb-server_*.deb (7.4),
# nats-server, envoy, prometheus.
set -euo pipefail
# A failed upload ends the list, too.
shopt -s inherit_errexit

fail() {
    echo "artifacts: $1" >&2
    exit 2
}

[ $# -ge 1 ] || fail "artifacts.sh FOLDER [BUCKET]"
folder=$1
bucket=${2:-}

# one PATTERN: the only file of that name.
one() {
    local found
    found=$(find "$folder" -maxdepth 1 -name "$1" -type f)
    if [ -z "$found" ] || [ "$(wc -l <<<"$found")" != 1 ]; then fail "$folder must have exactly one $1"; fi
    echo "$found"
}

# entry NAME PATTERN: the hash is part of the key, so a new program never replaces one that machines still fetch.
entry() {
    local file sum key
    file=$(one "$2")
    sum=$(sha256sum "$file" | cut -d' ' -f1)
    key=${sum:0:12}/${file##*/}
    [ -z "$bucket" ] || aws s3 cp --only-show-errors "$file" "s3://$bucket/$key" >&2
    echo "  $1 = { key = \"$key\", sha256 = \"$sum\" }"
}

lines=$(
    entry millrace 'millrace_*.deb'
    entry foundationdb_clients 'foundationdb-clients_*.deb'
    entry foundationdb_server 'foundationdb-server_*.deb'
    entry nats_server nats-server
    entry envoy envoy
    entry prometheus prometheus
)
printf 'artifacts = {\n%s\n}\n' "$lines"
