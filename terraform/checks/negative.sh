#!/usr/bin/env bash
# Tests of the checks: each makes one mistake in a copy and expects the check to fail and to name it.
#
#   terraform/checks/negative.sh [TEXT]        only mistakes whose name contains this text
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
copy=$target/deploy/negative
logs=$target/deploy/negative-logs
only=${1:-}
rm -rf "$logs"
mkdir -p "$logs"
failed=0

# caught NAME EXPECTED COMMAND...: the command must fail, and its output must have the expected text.
caught() {
    local name=$1 expected=$2 output code=0
    shift 2
    [[ $name == *"$only"* ]] || return 0
    output=$("$@" 2>&1) || code=$?
    if [ "$code" != 0 ] && grep -qE "$expected" <<<"$output"; then
        echo "caught: $name"
    elif [ "$code" = 0 ] && grep ^SKIPPED <<<"$output" | grep -v "Envoy's own"; then
        : # The tool that would see the mistake is not here; grep has said so.
    else
        echo "NOT CAUGHT: $name"
        tail -5 <<<"$output"
        failed=1
    fi
}

fresh() {
    rm -rf "$copy"
    mkdir -p "$copy/dashboards" "$copy/services/millrace/docs" "$copy/services/millrace/src"
    cp -r "$root/terraform" "$root/gateway" "$copy/"
    cp -r "$root/dashboards/prometheus" "$root/dashboards/collector" "$copy/dashboards/"
    cp "$root/services/millrace/docs/settings.md" "$copy/services/millrace/docs/"
    cp "$root/services/millrace/src/serve.rs" "$copy/services/millrace/src/"
}

# shellcheck disable=SC2317 # called through caught
# check NAME: runs a check of the copy with the tools of this tree.
check() { PORT=24056 CARGO_TARGET_DIR=$target TEST_MODULES=region "$copy/terraform/checks/check.sh" "$@"; }

# shellcheck disable=SC2317 # called through caught
# once NAME COMMAND...: a slow check that sees several mistakes of one copy: it runs the first time, and its output is repeated.
once() {
    local log=$logs/$1
    [ -e "$log.code" ] || { "${@:2}" >"$log" 2>&1 && echo 0 >"$log.code"; } || echo 1 >"$log.code"
    cat "$log"
    return "$(<"$log.code")"
}

# only_runs FILE NAME...: leaves these runs of a file of Terraform's tests, of which each takes seconds.
only_runs() {
    python3 - "$@" <<'PY'
import re, sys

head, *runs = re.split(r'(?m)^(?=run ")', open(sys.argv[1]).read())
kept = [run for run in runs if run.split('"')[1] in sys.argv[2:]]
assert len(kept) == len(sys.argv[2:]), f"{sys.argv[1]} has other runs: {[run.split(chr(34))[1] for run in runs]}"
open(sys.argv[1], "w").write(head + "".join(kept))
PY
}

fresh
sed -i 's/ebs_optimized  *= true/ebs_optimised = true/' "$copy/terraform/modules/group/main.tf"
rm -rf "$target/deploy/check/init/examples-small"
caught "an attribute that the provider does not have" 'ebs_optimised|Unsupported argument' check validate

fresh
sed -i 's/encrypted  *= true/encrypted = false/' "$copy/terraform/modules/foundationdb/main.tf"
caught "a disk without encryption" 'CKV_AWS_(3|8|189)' check policy

fresh
cat >>"$copy/terraform/modules/nats/main.tf" <<'HCL'
locals {
  unread = "a\n${jsonencode({
    items = [for name in ["a"] : {
      name = name
    }]
    end = "b"
  })}"
}
HCL
caught "a file that checkov does not parse" 'modules/nats/main.tf: checkov cannot parse this file' check policy

fresh
sed -i 's/{ from = "edge", to = "nats", port = 4222, to_port = 4222 },/&\n      { from = "edge", to = "nats", port = 8222, to_port = 8222 },/' "$copy/terraform/modules/access/main.tf"
rm -rf "$target/deploy/check/init/modules-region"
sed -i '/port = 9100, path = "\/metrics", job = "host"/d' "$copy/terraform/modules/region/main.tf"
sed -i 's|millrace-boot/metrics |millrace/metrics |' "$copy/terraform/modules/machine/files/node-exporter.service"
sed -i '/target_label: role/d' "$copy/terraform/modules/telemetry/files/prometheus.yml.tftpl"
sed -i 's|enable_unhealthy_connection_termination = false|enable_unhealthy_connection_termination = true|; /unhealthy_draining_interval/d' "$copy/terraform/modules/gateway/main.tf"
only_runs "$copy/terraform/modules/region/tests/region.tftest.hcl" only_load_balancers_take_connections_from_outside prometheus_reads_the_host_of_every_machine \
    a_gateway_that_drains_keeps_its_devices
caught "one more open port" 'who may connect to whom has changed' once tested check test
caught "machines that nobody watches" 'alerts on CPU, memory and clock are silent' once tested check test
caught "a lost machine that nobody misses" 'nobody hears of a machine that is gone for good' once tested check test
caught "certificates that nobody watches" 'nobody hears of a certificate between the machines that ends' once tested check test
caught "a load balancer that cuts the devices of a gateway that drains" 'a_gateway_that_drains_keeps_its_devices"... fail' once tested check test

# Copies of their own: Terraform skips the runs behind one that ended with an error.
fresh
sed -i 's|GATEWAY_DRAIN_S  *=|GATEWAY_DRAINS =|' "$copy/terraform/modules/gateway/main.tf"
only_runs "$copy/terraform/modules/region/tests/region.tftest.hcl" the_gateways_script_reads_each_of_its_variables
caught "a variable that the gateway does not read" 'the_gateways_script_reads_each_of_its_variables"... fail' check test

fresh
sed -i '/^net.ipv4.tcp_tw_reuse/d' "$copy/terraform/templates/sysctl.conf"
only_runs "$copy/terraform/modules/region/tests/region.tftest.hcl" a_gateway_uses_the_port_of_a_closed_connection_again
caught "a gateway whose ports stay taken for a minute" 'a_gateway_uses_the_port_of_a_closed_connection_again"... fail' check test

fresh
sed -i 's|sudo cp terraform/modules/nats/files/nats.service|suod cp terraform/modules/nats/files/nats.service|' "$copy/terraform/THREE-MACHINES.md"
caught "a command of a page that does not exist" 'suod: command not found' check three

fresh
sed -i 's|gateway/limits.nft$|gateway/limit.nft|' "$copy/terraform/THREE-MACHINES.md"
caught "a page that installs a file that does not exist" 'there is no gateway/limit.nft' check three

fresh
sed -i 's|sysctl.conf /etc/sysctl.d/60-millrace.conf$|sysctl.conf /etc/sysctl.conf.new|' "$copy/terraform/THREE-MACHINES.md"
caught "a page whose gateways keep the kernel's defaults" 'clients that connect and close leave a gateway without ports' check three

fresh
sed -i 's|regex("://(.*)\*@"|regex("://[^/?#\\\\s\\"@]*@"|' "$copy/terraform/modules/region/variables.tf"
only_runs "$copy/terraform/modules/region/tests/region.tftest.hcl" an_address_with_a_password_that_has_a_slash_is_refused
caught "a password with a slash among the settings" 'an_address_with_a_password_that_has_a_slash_is_refused"... fail' check test

fresh
sed -i 's|regex("://|regex("never://|' "$copy/terraform/modules/region/variables.tf"
only_runs "$copy/terraform/modules/region/tests/region.tftest.hcl" an_address_with_a_password_among_the_settings_is_refused
caught "a password among the settings" 'an_address_with_a_password_among_the_settings_is_refused"... fail' check test

fresh
printf 'variable "unused" {\n  type = string\n}\n' >>"$copy/terraform/modules/edge/variables.tf"
caught "a variable that nobody uses" 'terraform_unused_declarations' check lint

fresh
# shellcheck disable=SC2016 # the dollars are secrets.sh's
sed -i 's/ && fits "\$to"; then/; then/; /fits "\$folder/d' "$copy/terraform/secrets.sh"
caught "a key that is stored beside the certificate of another key" 'stores a key beside the certificate of another key' check secrets

fresh
sed -i 's/" serverAuth$/"/' "$copy/terraform/secrets.sh"
caught "a gateway's certificate that opens the database" "the gateway's certificate opens FoundationDB" check secrets

fresh
sed -i '0,/^tls-verify-peers/s/^tls-verify-peers.*/tls-verify-peers = Check.Valid=1/' "$copy/terraform/modules/foundationdb/files/foundationdb.conf.tftpl"
caught "a database that takes every machine's certificate" 'FoundationDB takes the certificates of: control edge foundationdb gateway nats' check secrets

fresh
sed -i 's/R.CN=region,S.CN/S.CN/' "$copy/terraform/modules/foundationdb/files/foundationdb.conf.tftpl"
caught "a backup that takes a stranger for the database" 'a backup takes for FoundationDB or S3: foundationdb s3 stranger' check secrets

fresh
sed -i 's/--delete-before-days || .*/--delete-before-days/' "$copy/terraform/modules/foundationdb/files/millrace-foundationdb.sh.tftpl"
caught "a backup that grows for ever" 'needs a flag that some versions of fdbbackup refuse' check database

fresh
mkdir -p "$copy/services/control"
cp "$root/services/control/openapi.json" "$copy/services/control/"
sed -i 's/tfsdk:"signing_key"/tfsdk:"sign_key"/' "$copy/terraform/provider/internal/provider/webhook.go"
caught "an attribute of the provider that the API does not have" 'webhookModel.sign_key is not in openapi.json' check contract

fresh
cp -r "$root/README.md" "$root/Makefile" "$root/runbooks" "$copy/"
cp -r "$root/services/stack" "$copy/services/"
sed -i 's/millrace config check --config/millrace config check --settings/' "$copy/terraform/ONE-MACHINE.md"
caught "a flag on a page that the program does not have" 'millrace config check` has no flag --settings' check commands

fresh
cp -r "$root/README.md" "$root/Makefile" "$root/runbooks" "$copy/"
cp -r "$root/services/stack" "$copy/services/"
sed -i 's/^millrace pods drain /millrace pods empty /' "$copy/runbooks/scale.md"
caught "a command of a runbook that the program does not have" 'scale.md: .*has no command empty' check commands

fresh
mkdir -p "$copy/loadtests"
cp -r "$root/loadtests/capacity" "$copy/loadtests/"
sed -i 's/| edge | 182 |/| edge | 128 |/' "$copy/terraform/FIRST-DEVICE.md"
sed -i 's/30 virtual CPUs and needs 36/30 virtual CPUs and needs 32/' "$copy/terraform/FIRST-DEVICE.md"
caught "a cost that is not the capacity model's" 'small, edge: the page says 128, it is 182' once costs check costs
caught "a quota without room for an upgrade" 'virtual CPUs for an upgrade: the page says 32, it is 36' once costs check costs

fresh
modules=$copy/terraform/modules
# shellcheck disable=SC2016 # the dollars are Terraform's
sed -i 's|\[for artifact in var.artifacts : "${var.boot.bucket_arn}/${artifact.key}"\]|["${var.boot.bucket_arn}/*"]|; s|\[var.boot.secret_arn\]|["*"]|' "$modules/machine/main.tf"
# shellcheck disable=SC2016
sed -i 's|^  into = merge(|&\n    { for cidr in var.devices : "plain ${cidr}" => { to = "edge", port = 1884, cidr = cidr } },|' "$modules/access/main.tf"
sed -i 's|, via = "s3"||' "$modules/foundationdb/main.tf"
sed -i 's|nats-route://|&pods:word@|' "$modules/nats/files/nats.conf.tftpl"
sed -i 's|= \[for zone in var.availability_zones : aws_subnet.private\[zone\]|= [for zone in var.availability_zones : aws_subnet.public[zone]|' "$modules/network/outputs.tf"
sed -i 's|http_tokens  *= "required"|http_tokens = "optional"|' "$modules/nats/main.tf"
sed -i 's|user_data_base64  *= module.machine.user_data_base64|user_data_base64 = base64encode("otlp_endpoint = https://key@collector.example.org")|' "$modules/telemetry/main.tf"
sed -i 's|user_data  *= module.machine.user_data_base64|user_data = null|' "$modules/group/main.tf"
sed -i 's|setsubtract(local.endpoints, \["ssmmessages"\])|["secretsmanager"]|' "$modules/network/main.tf"
sed -i 's|:autoscaling:[^"]*"|:autoscaling:*:*"|' "$modules/group/main.tf"
cat >>"$modules/secrets/main.tf" <<'HCL'
resource "aws_secretsmanager_secret_version" "edge" {
  secret_id     = aws_secretsmanager_secret.this["edge"].id
  secret_string = "word"
}
HCL
caught "a role that reads every program" 'may s3:GetObject on s3:::millrace-small-artifacts-[0-9]*/\*' once exposed check apply
caught "a role that uses the region's key itself" 'may kms:GenerateDataKey on the key$' once exposed check apply
caught "a role that reads every secret" 'the role millrace-small-gateway-.* may secretsmanager:GetSecretValue on \*' once exposed check apply
caught "a role that speaks for a group of the same name elsewhere" 'edge-.* may autoscaling:CompleteLifecycleAction on autoscaling:\*:\*' once exposed check apply
caught "a service that takes keys of another account" 'the service ssm inside the network takes keys of another account' once exposed check apply
caught "a machine that the internet reaches" 'the internet may connect to edge, ports 1884' once exposed check apply
caught "a machine in a public subnet" 'is in a subnet with a way to the internet gateway' once exposed check apply
caught "a secret in user data" 'nats.* has a secret in its user data: ://pods:word@' once exposed check apply
caught "a secret in user data that is not compressed" 'telemetry.* has a secret in its user data: ://key@' once exposed check apply
caught "a machine whose user data is not read" 'aws_launch_template.* has no user data that this check can read' once exposed check apply
caught "a secret in Terraform's state" 'aws_secretsmanager_secret_version.edge has a secret in Terraform' once exposed check apply
caught "a metadata service that gives away the role's keys" 'nats.aws_instance.* reads the role.s keys' once exposed check apply

fresh
mkdir -p "$copy/services/millrace/packaging"
cp "$root/services/millrace/packaging/millrace.service" "$copy/services/millrace/packaging/"
sed -i '/^SystemCallFilter=/d; /^RestrictNamespaces=/d' "$copy/terraform/modules/machine/files/node-exporter.service"
caught "a program that keeps system calls which it does not need" 'node-exporter.service leaves its program more than it needs' check units

fresh
sed -i 's|^setpriv .* /usr/local/lib|/usr/local/lib|' "$copy/terraform/modules/gateway/files/gateway-pods.sh"
caught "a gateway whose Envoy may overwrite files of root" 'test_a_gateway_that_was_taken_over_gets_no_file_of_root' check boot

fresh
sed -i 's|/usr/bin/setpriv .* /bin/sh|/bin/sh|' "$copy/terraform/modules/foundationdb/files/foundationdb.conf"
caught "a database that may overwrite files of root" 'test_a_database_that_was_taken_over_gets_no_file_of_root' check boot

fresh
sed -i '/chmod 1775/d' "$copy/terraform/modules/foundationdb/files/foundationdb.conf"
caught "a database that chooses what root starts" 'test_a_database_that_was_taken_over_does_not_choose_what_fdbmonitor_starts_as_root' check boot

fresh
sed -i 's|runcmd = .*|runcmd = [["/usr/local/sbin/millrace-boot"]]|' "$copy/terraform/modules/machine/main.tf"
caught "a first start that a reboot ends" 'test_a_machine_that_was_stopped_goes_on_at_its_next_start' check boot

packaged() {
    fresh
    mkdir -p "$copy/services/millrace"
    cp -r "$root/services/millrace/packaging" "$copy/services/millrace/"
    cp "$root/LICENSE" "$root/Makefile" "$copy/"
}

packaged
sed -i 's|prefix=${3-/usr}|prefix=${3:-/usr}|' "$copy/services/millrace/packaging/stage.sh"
caught "a tarball with usr/bin" 'the tarball has no bin/millrace' check packages

packaged
sed -i '/^umask /d' "$copy/services/millrace/packaging/"*.sh
caught "a package whose files only root can read" 'other users cannot read' check packages

packaged
mkdir "$copy/bin"
printf '#!/bin/sh\nexit 127\n' >"$copy/bin/readelf"
chmod +x "$copy/bin/readelf"
PATH=$copy/bin:$PATH caught "a machine without readelf" 'readelf cannot read the program' check packages

if [ -d "$root/terraform/chart" ]; then
    fresh
    sed -i 's/terminationGracePeriodSeconds:/terminationGracePeriodSecs:/' "$copy/terraform/chart/templates/edge.yaml"
    caught "a field that Kubernetes does not have" 'terminationGracePeriodSecs' check chart

    fresh
    sed -i 's/allowPrivilegeEscalation: false/allowPrivilegeEscalation: true/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a container that may gain privileges" 'CKV_K8S_20' check chartpolicy

    fresh
    sed -i 's/podMetricsEndpoints:/podMetricEndpoints:/' "$copy/terraform/chart/templates/telemetry.yaml"
    caught "a field that the Prometheus operator does not have" 'podMetricEndpoints' check chart

    fresh
    sed -i 's/processCounts: {{/processCount: {{/' "$copy/terraform/chart/templates/store.yaml"
    caught "a field that FoundationDB's operator does not have" 'processCount' check chart

    fresh
    sed -i 's/storage_engine: ssd-2/storage_engine: ssd-3/' "$copy/terraform/chart/templates/store.yaml"
    caught "a storage engine that FoundationDB's operator does not know" 'storage_engine' check chart

    fresh
    sed -i 's/, update, patch\]/]/' "$copy/terraform/chart/templates/store.yaml"
    caught "FoundationDB's pods that cannot report to their operator" "may not annotate themselves" check chart

    fresh
    sed -i 's/ (not .Values.stopped) }}/ true }}/' "$copy/terraform/chart/templates/edge.yaml"
    caught "an autoscaler that starts pods beside a migration" 'the autoscaler starts pods on a store that is copied' check chart

    fresh
    sed -i 's/ --set stopped=false / /' "$copy/terraform/chart/README.md"
    caught "a page that leaves the region without pods" 'the page leaves the edge without pods' check chart

    fresh
    sed -i 's/\.Values\.control\.graceSeconds 35 }}/0 }}/' "$copy/terraform/chart/templates/control.yaml"
    caught "a pod that is killed while it drains" 'a pod of control is killed after 15 s' check chart

    fresh
    sed -i 's/ \.Values\.edge\.graceSeconds 35 }}/ .Values.edge.graceSeconds 20 }}/' "$copy/terraform/chart/templates/edge.yaml"
    caught "a pod that is killed while it closes its store" 'a pod of edge is killed after 95 s' check chart

    fresh
    sed -i '/include "millrace.liveness"/s/:.*/: { tcpSocket: { port: http } }/' "$copy/terraform/chart/templates/edge.yaml"
    caught "a pod whose event loop hangs for ever" 'does not restart a pod of edge whose event loop hangs' check chart

    fresh
    sed -i '/- --fdb$/,+1d' "$copy/terraform/chart/templates/collector.yaml"
    caught "a region on Kubernetes whose FoundationDB nobody watches" 'nothing reads the status of FoundationDB' check chart

    fresh
    sed -i 's/10240 65000/32768 60999/' "$copy/terraform/chart/templates/gateway.yaml"
    caught "a gateway without ports for its devices" 'a gateway runs out of ports towards the pods' check chart

    fresh
    sed -i 's/{{ if .Values.gateway.reuseClosedPorts }}.*{{ end }} \]/ ]/' "$copy/terraform/chart/templates/gateway.yaml"
    caught "a gateway of the chart whose ports stay taken for a minute" 'gateway.reuseClosedPorts lets no gateway reuse its ports' check chart

    fresh
    sed -i 's/^  reuseClosedPorts: false$/  reuseClosedPorts: true/' "$copy/terraform/chart/values.yaml"
    caught "an unsafe sysctl by default" 'kubelets refuse the gateways. pods' check chart

    fresh
    sed -i 's/^  connectionsPerPod: 50000$/  connectionsPerPod: 200000/' "$copy/terraform/chart/values.yaml"
    caught "an autoscaler whose limit no pod reaches" 'the gateways carry 200000 connections' check chart

    fresh
    sed -i 's/secretKey.secretName=millrace-secret-key/secretKey.secretName=/' "$copy/terraform/chart/README.md"
    caught "a page whose region has no secret key" 'a region that the page installs has no secret key' check chart

    fresh
    sed -i 's/control.files.secretName=/secretKey.secretName= --set &/' "$copy/terraform/chart/README.md"
    caught "a page that changes the secret key of a region that runs" 'pods with and without the secret key' check chart

    fresh
    sed -i 's/MILLRACE_NATS_USER/MILLRACE_NATS_NAME/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a variable that the program does not read" 'that the program does not read: MILLRACE_NATS_NAME' check chart

    fresh
    sed -i 's/is in progress|is restorable/./' "$copy/terraform/chart/files/backup.sh"
    caught "a backup that never starts" 'the job starts no continuous backup' check chart

    fresh
    sed -i 's|/etc/millrace/backup/authorities.crt|/etc/millrace/internal/ca.crt|' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a backup that trusts no object storage" 'the backup trusts no authority of the object storage' check chart

    fresh
    # shellcheck disable=SC2016 # the dollars are Helm's
    sed -i 's/{{- fail "foundationdb.verifyPeers is empty.*/{{- $rules = append $rules "Check.Valid=1,R.CN=region,S.O=any" -}}/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a backup without a rule for the cluster's certificates" 'the chart takes a backup that takes each certificate of public authorities' check chart

    fresh
    sed -i 's/^{{- if not (regexMatch "(^|,)((S|Subject).*/{{- if false -}}/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a rule that takes every certificate" 'the chart takes the former default of foundationdb.backup.verifyPeers' check chart

    fresh
    sed -i 's/"blob-credentials.json" "authorities.crt")/"blob-credentials.json")/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a backup that starts without its authorities" 'millrace-backup does not ask for authorities.crt' check chart

    fresh
    sed -i 's/secret: {{ include "millrace.secret" (list .Values.deviceTls.secretName .*/secret: { secretName: {{ .Values.deviceTls.secretName }} }/' "$copy/terraform/chart/templates/gateway.yaml"
    caught "a secret whose missing key nobody names" 'the volume of millrace-devices names no keys' check chart

    fresh
    sed -i '/checksum\/configuration/d' "$copy/terraform/chart/templates/nats.yaml"
    caught "NATS with the configuration of the former chart" 'nats continues with its old configuration' check chart

    fresh
    sed -i 's/ "pod-template-hash"//' "$copy/terraform/chart/templates/gateway.yaml"
    caught "an upgrade that leaves all gateways on one node" 'an upgrade can leave all pods on one node' check chart

    fresh
    sed -i '0,/nodeTaintsPolicy/{/nodeTaintsPolicy/d}' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "pods that wait because another node is tainted" 'pods wait while a node is tainted' check chart

    fresh
    sed -i 's/, except: \[169.254.0.0\/16\] }/ }/' "$copy/terraform/chart/templates/network.yaml"
    caught "a backup that reaches the keys of its node" "the backup's pods reach the node's metadata service" check chart

    fresh
    # shellcheck disable=SC2016 # the dollars are Helm's
    sed -i 's/(and (hasPrefix "nats" $name) (contains "@" $text))/false/' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a password that everybody who lists pods reads" 'the chart takes a password in nats.urls' check chart

    fresh
    sed -i 's|://\\\\S\*@|://[^/?#]*@|' "$copy/terraform/chart/templates/_helpers.tpl"
    caught "a password with a slash that everybody who lists pods reads" 'the chart takes a password in control.settings.oidc_issuer=https://user:wo/rd' check chart

    fresh
    sed -i 's/^  connectionsMax: 100000$/&\n  connectsPerSecondMax: 2000/' "$copy/terraform/chart/values.yaml"
    caught "a value that has no effect" 'no effect: gateway.connectsPerSecondMax' check chart

    fresh
    # shellcheck disable=SC2016
    sed -i 's/include "millrace.natsPorts" $root/"4222"/' "$copy/terraform/chart/templates/network.yaml"
    caught "a network policy that does not know where NATS is" 'does not reach the ports of nats.urls' check chart
fi

rm -rf "$copy"
exit "$failed"
