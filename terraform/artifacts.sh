#!/usr/bin/env bash
# Uploads the programs that the machines install, and prints Terraform's variable `artifacts`.
#
#   terraform/artifacts.sh FOLDER                    prints the variable
#   terraform/artifacts.sh FOLDER BUCKET             uploads too
#
# FOLDER has: millrace_*.deb (make deb), foundationdb-clients_*.deb and foundationdb-server_*.deb (7.4),
# nats-server, envoy, prometheus, node_exporter; amazon-ssm-agent.deb, if people are to reach the machines by Session Manager; and
# otelcol (dashboards/collector/build.sh), if the region is to have an OpenTelemetry collector.
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

# object PATTERN: the hash is part of the key, so a new program never replaces one that machines still fetch.
object() {
    local file sum key
    file=$(one "$1")
    sum=$(sha256sum "$file" | cut -d' ' -f1)
    key=${sum:0:12}/${file##*/}
    [ -z "$bucket" ] || aws s3 cp --only-show-errors "$file" "s3://$bucket/$key" >&2
    echo "{ key = \"$key\", sha256 = \"$sum\" }"
}

# The assignment fails with the upload; echo would not.
entry() {
    local line
    line=$(object "$2")
    echo "  $1 = $line"
}

# Debian's images have no agent of Session Manager.
everywhere() {
    if [ -e "$folder/amazon-ssm-agent.deb" ]; then
        local agent
        agent=$(object amazon-ssm-agent.deb)
        echo "  everywhere = [$agent]"
    else
        echo "artifacts: there is no amazon-ssm-agent.deb, so \`aws ssm start-session\` will not reach the machines" >&2
    fi
}

lines=$(
    entry millrace 'millrace_*.deb'
    entry foundationdb_clients 'foundationdb-clients_*.deb'
    entry foundationdb_server 'foundationdb-server_*.deb'
    entry nats_server nats-server
    entry envoy envoy
    entry prometheus prometheus
    entry node_exporter node_exporter
    if [ -e "$folder/otelcol" ]; then entry otelcol otelcol; else echo "artifacts: no otelcol: no collector" >&2; fi
    everywhere
)
printf 'artifacts = {\n%s\n}\n' "$lines"
