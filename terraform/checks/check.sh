#!/usr/bin/env bash
# The deployment checks that need no cloud account: `make check-deploy`.
#
#   terraform/checks/check.sh            all
#   terraform/checks/check.sh NAME...    some of: format shell commands nightly three packages release image costs boot units secrets artifacts database contract telemetry lint validate test policy
#                                        chartpolicy negative chart drain kubernetes interrupted apply deb region provider
#
# A tool that is not here is installed into target/tools by tools.sh, or said to be missing: SKIPPED. The last line counts these; with
# STRICT=1 one fails. INSTALL=1 also installs packages of Debian, as root; make sets it.
# With pipefail a program ends with an error when `head` or `grep -q` has read enough: `sed -n 1,3p` and `grep >/dev/null` read all.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
work=$target/deploy/check
mkdir -p "$work"
# shellcheck disable=SC1091 # beside this one
source "$here/moto.sh"
# shellcheck disable=SC1091
source "$here/strangers.sh"
export TF_IN_AUTOMATION=1 TF_CLI_CONFIG_FILE=/dev/null

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# Whether Terraform and its provider are here or can be fetched.
has_terraform() {
    has terraform || { echo "SKIPPED: $1: terraform is not installed"; return 1; }
    [ -n "$TERRAFORM_PLUGINS" ] || [ -z "${TERRAFORM_OFFLINE:-}" ] \
        || { echo "SKIPPED: $1: no folder with the AWS provider (TERRAFORM_PLUGINS)"; return 1; }
}

# init FOLDER: a data folder for each, so that they are made once.
init() {
    export TF_DATA_DIR=$work/init/${1//\//-}
    # An init that failed leaves a part of the folder, and an init of negative.sh writes the lock file into its copy.
    [ "$TF_DATA_DIR/done" -nt "$root/terraform/$1/main.tf" ] && [ -e "$root/terraform/$1/.terraform.lock.hcl" ] && return 0
    terraform -chdir="$root/terraform/$1" init -input=false -no-color -backend=false \
        ${TERRAFORM_PLUGINS:+-plugin-dir="$TERRAFORM_PLUGINS"} >"$work/init.log" 2>&1 || { tail -20 "$work/init.log"; fail "init of $1"; }
    touch "$TF_DATA_DIR/done"
}

check_format() {
    has terraform || { echo "SKIPPED: terraform fmt: terraform is not installed"; return 0; }
    terraform fmt -check -recursive "$root/terraform" || fail "terraform fmt -recursive terraform mends these files"
    echo "terraform fmt: ok"
}

check_shell() {
    has shellcheck || { echo "SKIPPED: shellcheck is not installed"; return 0; }
    find "$root/terraform" "$root/services/millrace/packaging" -name "*.sh" -not -path "*/.terraform/*" -print0 |
        xargs -0 shellcheck || fail "shellcheck"
    echo "shellcheck: ok"
}

# Prometheus' own check of the telemetry machine's configuration, with its rules. Without arguments for EC2 nothing is asked.
check_telemetry() {
    has terraform || { echo "SKIPPED: prometheus.yml of the region: terraform is not installed"; return 0; }
    has promtool || { echo "SKIPPED: prometheus.yml of the region: promtool is not installed (apt-get install prometheus)"; return 0; }
    local module=$root/terraform/modules/telemetry/files alertmanager
    for alertmanager in null '{ targets = ["10.0.3.7:9093"], scheme = "https", path_prefix = "/" }'; do
        echo "jsonencode(templatefile(\"prometheus.yml.tftpl\", { name = \"eu\", region = \"eu-central-1\", alertmanager = $alertmanager, statuses = { foundationdb = \"10.40.0.10:7777\" }, targets = [
            { role = \"edge\", port = 8090, path = \"/metrics\", job = \"millrace\" }] }))" | tr '\n' ' ' |
            TF_DATA_DIR=$work/console terraform -chdir="$module" console |
            python3 -c 'import json, sys; print(json.loads(json.loads(sys.stdin.read())))' |
            sed "s|/etc/prometheus/rules|$root/dashboards/prometheus/rules|" >"$work/prometheus.yml"
        promtool check config "$work/prometheus.yml" >"$work/prometheus.log" 2>&1 || { cat "$work/prometheus.log"; fail "promtool check config"; }
        grep -q 'SUCCESS: [0-9]* rules found' "$work/prometheus.log" || { cat "$work/prometheus.log"; fail "prometheus.yml names no rules"; }
    done
    echo "promtool check config: ok"
}

check_lint() {
    "$here/tools.sh" tflint
    [ -x "$tools/tflint" ] || { echo "SKIPPED: tflint: it is not installed"; return 0; }
    local folder
    # Not checks/, whose only configuration is one file.
    for folder in modules examples; do
        "$tools/tflint" --chdir="$root/terraform/$folder" --config="$root/terraform/.tflint.hcl" --recursive --no-color || fail "tflint of $folder"
    done
    echo "tflint: ok"
}

check_validate() {
    has_terraform "terraform validate" || return 0
    local example
    for example in small production multi-region; do
        init "examples/$example"
        nice terraform -chdir="$root/terraform/examples/$example" validate -no-color >"$work/validate.log" 2>&1 \
            || { cat "$work/validate.log"; fail "validate of $example"; }
        echo "terraform validate: $example: ok"
    done
}

# tested MODULE: Terraform gives a provider a minute to start, which a busy machine exceeds; then the tests are run again, once.
tested() {
    local try
    for try in 1 2; do
        ! nice terraform -chdir="$root/terraform/modules/$1" test -no-color >"$work/test.log" 2>&1 || return 0
        [ "$try" = 1 ] && slow_start <"$work/test.log" || return 1
        echo "NOTE: the tests of $1 are repeated"
    done
}

check_test() {
    has_terraform "terraform test" || return 0
    slow_start <<<$'schema: timeout while waiting\nfor plugin to start..' >/dev/null || fail "a provider that starts slowly is taken for a failed test"
    local module
    for module in ${TEST_MODULES:-capacity network buckets group nats foundationdb region}; do
        init "modules/$module"
        tested "$module" || { cat "$work/test.log"; fail "terraform test of $module"; }
        echo "terraform test: $module: $(tail -1 "$work/test.log")"
    done
}

check_boot() {
    has python3 || { echo "SKIPPED: tests of boot.py: python3 is not installed"; return 0; }
    local test
    for test in aws_test.py boot_test.py first_start_test.py; do
        PATH=$PATH:/usr/sbin PYTHONDONTWRITEBYTECODE=1 python3 "$root/terraform/modules/machine/boot/$test" 2>"$work/boot.log" \
            || { cat "$work/boot.log"; fail "$test"; }
        grep '^Ran\|skipped' "$work/boot.log" | sed "s/^/$test: /"
    done
    python3 -B "$here/folders_test.py" 2>"$work/boot.log" || { cat "$work/boot.log"; fail "a program that was taken over gets files of root"; }
    grep '^Ran\|skipped' "$work/boot.log" | sed 's/^/folders_test.py: /'
    python3 -B "$here/orphans_test.py" 2>"$work/boot.log" || { cat "$work/boot.log"; fail "orphans.py imports a rule under another one's address"; }
}

# systemd judges what a program can do beside its task, if it was taken over: 0 is nothing, 10 everything.
check_units() {
    has systemd-analyze || { echo "SKIPPED: exposure of systemd's units: systemd-analyze is not installed"; return 0; }
    local folder=$work/units unit name said judged=0
    rm -rf "$folder"
    mkdir -p "$folder"
    for unit in "$root"/terraform/modules/*/files/*.service* "$root"/services/millrace/packaging/*.service; do
        # Units of root fetch the machine's secrets, so they cannot be cut off from them.
        grep -q '^\(User\|DynamicUser\)=' "$unit" || continue
        name=$(basename "$unit" .tftpl)
        # shellcheck disable=SC2016 # the dollars are Terraform's
        sed 's/\${[^}]*}/1/g; s/%{[^}]*}//g' "$unit" >"$folder/$name"
        said=$(systemd-analyze security --no-pager --offline=true --threshold=20 "$folder/$name" 2>&1) \
            || { grep '✗' <<<"$said" | sort -k3 -rn | head; fail "$name leaves its program more than it needs: $(grep -o 'Overall.*' <<<"$said")"; }
        judged=$((judged + 1))
    done
    [ "$judged" -gt 6 ] || fail "only $judged units were judged"
    echo "systemd-analyze security: $judged units: ok"
}

# Checks who may connect to FoundationDB, and whom its clients take for a server.
check_peers() {
    local folder=$1 module=modules/foundationdb/files found file name
    # rule FILE NAME: the rules that FILE gives NAME, one a line.
    rule() { sed -n "s/.*$2[ =:]*['\"]*\(Check[^ '\"\\]*\).*/\1/p" "$root/terraform/$1"; }
    # met RULES: the roles whose certificates meet the rules.
    met() {
        [ -n "$1" ] || { echo anybody; return 0; }
        python3 -B "$here/peers.py" "$1" "$folder" | xargs
    }
    found=$(met "$(rule $module/foundationdb.conf.tftpl tls-verify-peers | head -1)")
    [ "$found" = "control edge foundationdb" ] || fail "FoundationDB takes the certificates of: $found"
    found=$(met "$(rule THREE-MACHINES.md tls-verify-peers)")
    [ "$found" = "edge foundationdb" ] || fail "FoundationDB of THREE-MACHINES.md takes the certificates of: $found"
    while read -r file name; do
        found=$(met "$(rule "$file" "$name")")
        [ "$found" = foundationdb ] || fail "$file: a client takes for a server of FoundationDB: $found"
    done <<FILES
modules/edge/main.tf fdb_tls_verify
modules/control/main.tf fdb_tls_verify
THREE-MACHINES.md fdb_tls_verify
ONE-MACHINE.md fdb-tls-verify
$module/millrace-status.service.tftpl FDB_TLS_VERIFY_PEERS
FILES
    # The backup's programs trust public authorities, too, because they write to S3.
    strangers "$folder"
    while read -r file name; do
        found=$(met "$(rule "$file" "$name" | tail -1)")
        [ "$found" = "foundationdb s3" ] || fail "$file: a backup takes for FoundationDB or S3: $found"
    done <<FILES
$module/foundationdb.conf.tftpl tls-verify-peers
$module/millrace-foundationdb.sh.tftpl FDB_TLS_VERIFY_PEERS
modules/foundationdb/main.tf FDB_TLS_VERIFY_PEERS
FILES
    rm -rf "$folder/s3" "$folder/stranger"
}

# Checks the certificates of secrets.sh, their purposes, and the permissions of the files.
check_secrets() {
    local folder=$work/secrets region='{"nats_addresses": ["10.40.0.200"], "domain": "mqtt.example.org"}' role made
    rm -rf "$folder"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make"
    made=$(find "$folder" -type f -exec sha256sum {} + | sort)
    accepted() { openssl verify -purpose "$2" -CAfile "$folder/ca.crt" "$folder/$1/tls.crt" >/dev/null 2>&1; }
    for role in foundationdb nats edge control; do
        accepted "$role" sslclient || fail "secrets.sh: FoundationDB and NATS refuse the certificate of $role"
    done
    accepted gateway sslserver || fail "secrets.sh: devices refuse the gateway's certificate"
    ! accepted gateway sslclient || fail "secrets.sh: the gateway's certificate opens FoundationDB and NATS"
    check_peers "$folder"
    [ -z "$(find "$folder" -perm /077)" ] || fail "secrets.sh: others may read $(find "$folder" -perm /077 | head -1)"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, again"
    [ "$made" = "$(find "$folder" -type f -exec sha256sum {} + | sort)" ] || fail "secrets.sh: a second run makes other secrets"
    # A certificate that ends soon, and a certificate of another authority.
    sed 's/^days=.*/days=30/; s/^renew_days=.*/renew_days=40000/' "$root/terraform/secrets.sh" >"$folder/short.sh"
    bash "$folder/short.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make of short certificates"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=other \
        -keyout "$folder/gateway/tls.key" -out "$folder/gateway/tls.crt" 2>/dev/null
    made=$(cat "$folder/ca.crt" "$folder/nats-password" "$folder/gateway/tls.crt")
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, to renew"
    for role in foundationdb nats edge control; do
        openssl x509 -in "$folder/$role/tls.crt" -noout -checkend $((400 * 86400)) >/dev/null || fail "secrets.sh does not renew the certificate of $role"
        accepted "$role" sslclient || fail "secrets.sh: the renewed certificate of $role is refused"
    done
    [ "$made" = "$(cat "$folder/ca.crt" "$folder/nats-password" "$folder/gateway/tls.crt")" ] || fail "secrets.sh: a renewal replaces what must stay"
    check_nats_names "$folder" "$region"
    check_interrupted_secrets "$folder" "$region"
    check_secret_key "$folder/keyed" "$region"
    check_other_folder "$folder/stored-before" "$region"
    rm -rf "$folder"
    echo "secrets.sh: ok"
}

# Clients connect to the addresses of NATS' servers, so the certificate must have each, also those of servers that came later.
check_nats_names() {
    local folder=$1 region=$2 wrong
    for wrong in "" "{}" '{"nats_addresses": []}'; do
        ! "$root/terraform/secrets.sh" make "$folder/none" --self-signed <<<"$wrong" >/dev/null 2>"$folder/refused" || fail "secrets.sh makes certificates without the addresses of NATS"
        grep -q nats_addresses "$folder/refused" || fail "secrets.sh make with \"$wrong\": $(cat "$folder/refused")"
    done
    [ ! -e "$folder/none" ] || fail "secrets.sh makes a folder without the addresses of NATS"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"${region/200\"/200\", \"10.40.0.201\"}" >/dev/null || fail "secrets.sh make, for a second NATS"
    openssl x509 -in "$folder/nats/tls.crt" -noout -checkip 10.40.0.201 | grep -q 'does match' || fail "secrets.sh: the certificate of NATS lacks the new server"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, for one NATS again"
}

# A region with has_secret_key gets a key, which stays; a region without it gets none, because its store was made without.
check_secret_key() {
    local folder=$1 region=${2%\}} example key
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region, \"has_secret_key\": false}" >/dev/null || fail "secrets.sh make, without a secret key"
    [ -z "$(find "$folder" -name secret-key)" ] || fail "secrets.sh makes a secret key for a region without one"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region, \"has_secret_key\": true}" >/dev/null || fail "secrets.sh make, with a secret key"
    key=$(cat "$folder/edge/secret-key" 2>/dev/null || true)
    [ "${#key}" -ge 64 ] || fail "secrets.sh makes no secret key for a region that has one"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region, \"has_secret_key\": true}" >/dev/null || fail "secrets.sh make, again with a secret key"
    [ "$key $key" = "$(<"$folder/edge/secret-key") $(<"$folder/control/secret-key")" ] || fail "secrets.sh replaces the secret key of a region"
    for example in "$root"/terraform/examples/*/main.tf; do
        [ "$(grep -c 'source .*modules/region"' "$example")" = "$(grep -c '^  has_secret_key *= true$' "$example")" ] \
            || fail "$example makes a region without a secret key, which costs all tokens later"
    done
}

# stand_in FOLDER: an aws in FOLDER/bin that keeps secrets in FOLDER/values, and notes in FOLDER/stored which it was given.
stand_in() {
    mkdir -p "$1/bin" "$1/values"
    cat >"$1/bin/aws" <<SH
#!/bin/sh
# aws secretsmanager COMMAND --secret-id NAME ...
case \$2 in
put-secret-value) cat >"$1/values/\$4" && echo "\$4" >>"$1/stored" ;;
get-secret-value)
    if [ -z "\$REFUSED" ] && [ -e "$1/values/\$4" ]; then cat "$1/values/\$4"; else echo "An error occurred (\${REFUSED:-ResourceNotFoundException})" >&2; exit 254; fi
    ;;
esac
SH
    chmod +x "$1/bin/aws"
}

# store FOLDER SECRETS [FLAG]: `secrets.sh put SECRETS` with the aws of FOLDER.
store() {
    : >"$1/stored"
    PATH=$1/bin:$PATH "$root/terraform/secrets.sh" put "${@:2}" >/dev/null 2>"$1/refused" \
        <<<'{"secrets": {"foundationdb": "f", "nats": "n", "edge": "e", "control": "c", "gateway": "g"}}'
}

# stored_none FOLDER WHAT
stored_none() { [ ! -s "$1/stored" ] || fail "secrets.sh stores some secrets $2"; }

# A full disk or Ctrl-C leaves files without a content, an authority without its certificate, or a new key beside the old certificate.
check_interrupted_secrets() {
    local folder=$1 region=$2 name
    stand_in "$folder"
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$folder/edge/tls.key" 2>/dev/null
    ! store "$folder" "$folder" || fail "secrets.sh stores a key beside the certificate of another key"
    grep -q 'edge/tls.crt and tls.key do not belong together' "$folder/refused" || fail "secrets.sh does not say which pair is none"
    stored_none "$folder" "before it has looked at each pair"
    rm "$folder/ca.crt"
    : >"$folder/nats-password"
    : >"$folder/operator-token"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, after an interrupted one"
    for name in nats-password edge/nats-password operator-token edge/operator-token; do
        [ "$(wc -c <"$folder/$name")" -gt 60 ] || fail "secrets.sh: $name is empty after an interrupted run"
    done
    store "$folder" "$folder" || fail "secrets.sh put, after an interrupted make"
    [ "$(wc -l <"$folder/stored")" = 5 ] || fail "secrets.sh does not store five secrets"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=past -keyout "$folder/gateway/tls.key" 2>/dev/null |
        openssl x509 -req -key "$folder/gateway/tls.key" -days -1 -out "$folder/gateway/tls.crt" 2>/dev/null
    ! store "$folder" "$folder" || fail "secrets.sh stores a certificate that has ended"
    stored_none "$folder" "before it has looked at each end"
}

# The folder of another region, or one that was made again, has another authority and another key.
check_other_folder() {
    local folder=$1 region="${2%\}}, \"has_secret_key\": true}" own=$1/own other=$1/other
    stand_in "$folder"
    "$root/terraform/secrets.sh" make "$own" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, of a region"
    "$root/terraform/secrets.sh" make "$other" --self-signed <<<"$region" >/dev/null || fail "secrets.sh make, of another region"
    store "$folder" "$own" || fail "secrets.sh put, of a region that has none"
    store "$folder" "$own" || fail "secrets.sh put, again"
    # refused SECRETS FILE
    refused() {
        ! store "$folder" "$1" || fail "secrets.sh puts another $2 over that of a region"
        grep -q "$1/$2 is not the one that the region has" "$folder/refused" || fail "secrets.sh does not name $2: $(cat "$folder/refused")"
        stored_none "$folder" "of another folder"
    }
    refused "$other" foundationdb/ca.crt
    cp -r "$own" "$folder/again"
    openssl rand -hex 32 >"$folder/again/control/secret-key"
    refused "$folder/again" control/secret-key
    rm "$folder/again/control/secret-key"
    refused "$folder/again" control/secret-key
    cp "$own/control/secret-key" "$folder/again/control/"
    openssl rand -hex 32 >"$folder/again/edge/nats-password"
    refused "$folder/again" edge/nats-password
    ! REFUSED=AccessDeniedException store "$folder" "$own" || fail "secrets.sh stores secrets without knowing those of the region"
    stored_none "$folder" "without knowing those of the region"
    store "$folder" "$other" --replace || fail "secrets.sh put --replace"
    [ "$(wc -l <"$folder/stored")" = 5 ] || fail "secrets.sh put --replace does not store five secrets"
    ! store "$folder" "$own" --force || fail "secrets.sh takes a flag that it does not know"
}

# Checks the output of artifacts.sh, and that a failed upload fails it; a stub of `aws` records its arguments.
check_artifacts() {
    local folder=$work/artifacts name
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/programs"
    for name in millrace_1_amd64.deb foundationdb-clients_7_amd64.deb foundationdb-server_7_amd64.deb nats-server envoy prometheus node_exporter otelcol amazon-ssm-agent.deb; do
        echo "$name" >"$folder/programs/$name"
    done
    # shellcheck disable=SC2016 # the variable is aws's
    printf '#!/bin/sh\ncase $* in *%s*) exit 1 ;; esac\n' '"$REFUSED"' >"$folder/bin/aws"
    chmod +x "$folder/bin/aws"
    upload() { PATH=$folder/bin:$PATH REFUSED=$1 "$root/terraform/artifacts.sh" "$folder/programs" bucket; }
    upload none >"$folder/list" || fail "artifacts.sh"
    [ "$(grep -c 'sha256 = "[0-9a-f]\{64\}"' "$folder/list")" = 9 ] || fail "artifacts.sh does not list 9 programs"
    rm "$folder/programs/otelcol"
    upload none 2>&1 >"$folder/list" | grep 'no otelcol: no collector' >/dev/null || fail "artifacts.sh does not say that the region gets no collector"
    [ "$(grep -c 'sha256 = "[0-9a-f]\{64\}"' "$folder/list")" = 8 ] || fail "artifacts.sh does not list the other programs without otelcol"
    for name in envoy amazon-ssm-agent; do
        ! upload "/$name" >/dev/null 2>&1 || fail "artifacts.sh: a failed upload of $name is not noticed"
    done
    echo "artifacts.sh: ok"
}

# rendered REDUNDANCY MACHINES: the database machine's script.
rendered() {
    echo "jsonencode(templatefile(\"millrace-foundationdb.sh.tftpl\", { redundancy = \"$1\", machine_count = $2, backup_url = \"blobstore://backups\", backup_days = 35 }))" |
        TF_DATA_DIR=$work/console terraform -chdir="$root/terraform/modules/foundationdb/files" console |
        python3 -c 'import json, sys; print(json.loads(json.loads(sys.stdin.read())))'
}

# The database machine's script, beside programs that only write down their arguments.
check_database() {
    has terraform || { echo "SKIPPED: the script of FoundationDB's machine: terraform is not installed"; return 0; }
    local folder=$work/database
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    rendered double 3 >"$folder/script"
    rendered three_data_hall 6 >"$folder/grown"
    # A cluster whose redundancy and number of machines are in files.
    cat >"$folder/bin/fdbcli" <<'SH'
#!/bin/sh
machines=$(cat "$STATE.machines")
echo "$machines machines: fdbcli $*" >>"$CALLS"
case $* in
*'status json')
    printf '{"cluster": {"data": {"state": {"healthy": true}}, "configuration": {"redundancy_mode": "%s"}, "processes": {' "$(cat "$STATE.redundancy")"
    while [ "$machines" -gt 0 ]; do
        printf '"%s": {"locality": {"zoneid": "foundationdb-%s"}}' "$machines" "$machines"
        machines=$((machines - 1))
        [ "$machines" = 0 ] || printf ', '
    done
    echo '}}}'
    ;;
*'configure new '*) ;;
*'configure '*) echo "${*##* }" >"$STATE.redundancy" ;;
*) echo 'The database is available.' ;;
esac
SH
    cat >"$folder/bin/fdbbackup" <<'SH'
#!/bin/sh
echo "fdbbackup $*" >>"$CALLS"
case $* in
"status "*) [ ! -e "$CALLS.started" ] || echo 'is in progress' ;;
"start "*) touch "$CALLS.started" ;;
*"$REFUSED"*) exit 1 ;;
esac
SH
    # A machine joins meanwhile.
    # shellcheck disable=SC2016 # the dollars are the stub's
    printf '#!/bin/sh\necho $(($(cat "$STATE.machines") + 1)) >"$STATE.machines"\n' >"$folder/bin/sleep"
    chmod +x "$folder/bin/"*
    # script REFUSED ARGUMENTS...: REFUSED is a flag that fdbbackup does not take.
    script() { rm -f "$folder/calls"*; PATH=$folder/bin:$PATH CALLS=$folder/calls STATE=$folder/state REFUSED=$1 timeout 200 bash "$folder/${file:-script}" "${@:2}" >"$folder/log"; }
    # cluster REDUNDANCY MACHINES
    cluster() { echo "$1" >"$folder/state.redundancy"; echo "$2" >"$folder/state.machines"; }
    ! has shellcheck || shellcheck --shell=bash "$folder/script" "$folder/grown" || fail "shellcheck of millrace-foundationdb.sh.tftpl"
    cluster double 3
    script none || fail "the script of FoundationDB's machine"
    grep -q '^fdbbackup start .*-z .*-d blobstore://backups$' "$folder/calls" || fail "the script starts no continuous backup"
    ! grep -q 'fdbbackup expire' "$folder/calls" || fail "the script removes backups at its start"
    ! grep -q 'configure double' "$folder/calls" || fail "the script configures a database that is as it should be"
    script none expire || fail "the script does not remove old backups"
    grep -q '^fdbbackup expire -d blobstore://backups .*--delete-before-days 35$' "$folder/calls" || fail "the script removes backups of other days"
    script --delete-before-days expire || fail "the script needs a flag that some versions of fdbbackup refuse"
    ! script --delete expire || fail "systemd does not see that no backup was removed"
    check_growth "$folder"
    echo "millrace-foundationdb: ok"
}

# With six machines `double` may keep both copies in one zone.
check_growth() {
    local folder=$1 file
    cluster double 4
    file=grown script none || fail "the script of FoundationDB's machine, after machines were added"
    [ "$(cat "$folder/state.redundancy")" = three_data_hall ] || fail "the script leaves a database of six machines at double"
    grep 'configure three' "$folder/calls" >"$folder/configured"
    [ "$(cat "$folder/configured")" = "6 machines: fdbcli --timeout 20 --exec configure three_data_hall" ] || fail "the script changes the redundancy before all machines have joined: $(cat "$folder/configured")"
    cluster three_data_hall 6
    script none || fail "the script of FoundationDB's machine, which has more copies than it should"
    [ "$(cat "$folder/state.redundancy")" = three_data_hall ] || fail "the script takes copies away"
}

policy() { LOG_LEVEL=ERROR nice "$tools/deploy-python/bin/python" -B "$here/policy.py" "$tools/deploy-python/bin/checkov" "$@"; }

check_policy() {
    "$here/tools.sh" python
    policy --directory "$root/terraform" --framework terraform --config-file "$root/terraform/.checkov.yaml" >"$work/policy.log" 2>&1 \
        || { cat "$work/policy.log"; fail "checkov: mend it, or accept it with a reason in terraform/.checkov.yaml"; }
    echo "checkov: $(tail -1 "$work/policy.log"); accepted findings and their reasons are in terraform/.checkov.yaml"
}

# The rendered chart, as checkov judges pods.
check_chartpolicy() {
    "$here/tools.sh" python chart
    [ -x "$tools/helm" ] || { echo "SKIPPED: checkov of the chart: helm is not installed"; return 0; }
    local folder=$work/chartpolicy
    rm -rf "$folder"
    mkdir -p "$folder"
    "$tools/helm" template region "$root/terraform/chart" --kube-version 1.36.3 --set foundationdb.external.clusterFile=a:b@10.0.0.1:4500:tls \
        --set-literal foundationdb.verifyPeers=Check.Valid=1,S.CN=foundationdb --set telemetry.serviceMonitors=true --set secretKey.secretName=key --set control.files.secretName=files \
        --set 'foundationdb.backup.url=blobstore://@s3.eu-central-1.amazonaws.com/millrace?bucket=b&region=eu-central-1' \
        --set control.ingress.enabled=true --set 'control.proxies={10.244.0.0/16}' >"$folder/all.yaml" 2>"$work/chartpolicy.log" \
        || { grep -v walk.go "$work/chartpolicy.log"; fail "helm template"; }
    "$tools/helm" template region "$root/terraform/chart" --kube-version 1.36.3 --set foundationdb.external.clusterFile=a:b@10.0.0.1:4500:tls \
        --set stopped=true --set migration.claim=move --set telemetry.collector.enabled=true >"$folder/migration.yaml" 2>"$work/chartpolicy.log" || { grep -v walk.go "$work/chartpolicy.log"; fail "helm template"; }
    policy --directory "$folder" --framework kubernetes --config-file "$here/checkov-chart.yaml" >"$work/chartpolicy.log" 2>&1 \
        || { cat "$work/chartpolicy.log"; fail "checkov: mend the chart, or accept it with a reason in terraform/checks/checkov-chart.yaml"; }
    # A folder without a pod passes, too.
    grep -q '^kind: StatefulSet' "$folder/all.yaml" || fail "the rendered chart has no pods"
    echo "checkov of the chart: $(tail -1 "$work/chartpolicy.log"); accepted findings and their reasons are in terraform/checks/checkov-chart.yaml"
}

check_apply() {
    has_terraform "apply against moto" || return 0
    "$here/apply.sh" || fail "apply"
}

check_interrupted() {
    has_terraform "an interrupted apply" || return 0
    "$here/interrupted.sh" || fail "interrupted apply"
}

check_negative() { "$here/negative.sh" || fail "a mistake was not caught"; }

check_contract() {
    has python3 || { echo "SKIPPED: contract of the provider: python3 is not installed"; return 0; }
    python3 "$root/terraform/checks/contract.py" "$root" || fail "the provider and services/control/openapi.json do not fit"
}

# MILLRACE names the program that says which commands there are.
check_commands() {
    local program=${MILLRACE:-$target/release/millrace}
    has python3 || { echo "SKIPPED: commands of the pages: python3 is not installed"; return 0; }
    [ -x "$program" ] || { echo "SKIPPED: commands of the pages: there is no $program; build it or set MILLRACE"; return 0; }
    # shellcheck disable=SC2046 # one word for each page
    python3 -B "$here/commands.py" "$program" "$root" README.md terraform/README.md terraform/FIRST-DEVICE.md terraform/ONE-MACHINE.md terraform/THREE-MACHINES.md \
        terraform/provider/README.md terraform/chart/README.md $(cd "$root" && echo runbooks/*.md) || fail "a page has a command that is not there"
}

# The nightly backup of ONE-MACHINE.md, with a millrace that makes empty backups or fails.
check_nightly() {
    local folder=$work/nightly line
    line=$(sed -n 's/^17 3 \* \* \* millrace //p' "$root/terraform/ONE-MACHINE.md" | sed "s/\\\\%/%/g; s|/var/lib/millrace-backups|$folder/backups|g")
    [ -n "$line" ] || fail "ONE-MACHINE.md has no backup each night"
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/backups"
    # As the program does, `millrace backup TARGET` takes no folder that is there, and leaves a part when it fails.
    cat >"$folder/bin/millrace" <<'SH'
#!/bin/sh
[ ! -e "$2" ] && mkdir "$2.partial" && echo "$NIGHT" >"$2.partial/night" && [ "$NIGHT" != failed ] && mv "$2.partial" "$2"
SH
    printf '#!/bin/sh\necho 3\n' >"$folder/bin/date"
    chmod +x "$folder/bin/"*
    night() { PATH=$folder/bin:$PATH NIGHT=$1 sh -c "$line"; }
    night first || fail "the nightly backup of ONE-MACHINE.md"
    ! night failed || fail "ONE-MACHINE.md: a nightly backup that fails ends as if it had not"
    [ "$(cat "$folder/backups/3/night")" = first ] || fail "ONE-MACHINE.md: a night that fails removes a good backup"
    night second || fail "ONE-MACHINE.md: no backup is made after a night that failed"
    [ "$(cat "$folder"/backups/*/night)" = second ] || fail "ONE-MACHINE.md: more backups stay than one of each weekday: $(ls "$folder/backups")"
    rm -rf "$folder"
    echo "nightly backup: ok"
}

# lame_duck CONF NAME: NATS moves its clients to other servers before it ends, and systemd kills it when that takes longer than TimeoutStopSec.
# Without both lines NATS takes 2 minutes and 10 s.
lame_duck() {
    local limit needed
    limit=$(sed -n 's/^TimeoutStopSec=//p' "$root/terraform/modules/nats/files/nats.service")
    needed=$(sed -nE 's/^lame_duck_(duration|grace_period): "([0-9]+)s"$/\2/p' "$1" | awk '{ sum += $1 } END { print NR == 2 ? sum : 130 }')
    [ "$needed" -lt "$limit" ] || fail "$2: systemd kills NATS at each stop: it takes up to $needed s, and systemd waits for $limit s"
}

# The files that THREE-MACHINES.md writes, by the programs that read them. MILLRACE, NATS_SERVER and ENVOY name them.
check_three() {
    local folder=$work/three program=${MILLRACE:-$target/release/millrace} nats=${NATS_SERVER:-$tools/nats-server}
    for tool in "$program" "$nats"; do
        [ -x "$tool" ] || { echo "SKIPPED: the files of THREE-MACHINES.md: there is no $tool"; return 0; }
    done
    rm -rf "$folder"
    mkdir -p "$folder"
    # A script of its own: bash ignores `set -e` in a subshell on the left of `||`.
    # shellcheck disable=SC2016 # the backticks are the page's
    { cat "$here/three.sh"; sed -n 's/^   //; /^```sh$/,/^```$/{/^```/!p}' "$root/terraform/THREE-MACHINES.md"; } >"$folder/commands.sh"
    mkdir "$folder/terraform"
    cp "$root/terraform/secrets.sh" "$folder/terraform/"
    (cd "$folder" && ROOT=$root bash -eu commands.sh) >"$folder/log" 2>&1 || { tail -5 "$folder/log"; fail "the commands of THREE-MACHINES.md"; }
    # The machine of the page has a cluster file of FoundationDB, and the program opens it.
    echo 'home:home@10.0.0.1:4500:tls' >"$folder/fdb.cluster"
    sed -i "s|/etc/nats/secrets|$folder/region-secrets/nats|g; s|/etc/millrace/secrets|$folder/region-secrets/edge|; s|/var/lib/millrace/fdb.cluster|$folder/fdb.cluster|; s|\$NATS_PODS_PASSWORD|p1|" \
        "$folder/nats.conf" "$folder/millrace.toml"
    lame_duck "$folder/nats.conf" THREE-MACHINES.md
    lame_duck "$root/terraform/modules/nats/files/nats.conf.tftpl" modules/nats
    "$nats" -t --config "$folder/nats.conf" >"$folder/nats.log" 2>&1 || { cat "$folder/nats.log"; fail "nats.conf of THREE-MACHINES.md"; }
    # A program without FoundationDB checks the other settings.
    "$program" --version | grep '^features:.*foundationdb' >/dev/null || sed -i 's/^store .*/pods = 2/; /^fdb_\|^pod /d' "$folder/millrace.toml"
    "$program" config check --config "$folder/millrace.toml" || fail "millrace.toml of THREE-MACHINES.md"
    # The machine has the folders of the page's tar alone.
    local unit
    unit=$(sed -n 's/^   sudo cp \(.*gateway-limits.service\) .*/\1/p' "$root/terraform/THREE-MACHINES.md")
    { [ -e "$root/$unit" ] && grep -q "^     tar .* $(cut -d/ -f1-3 <<<"$unit") " "$root/terraform/THREE-MACHINES.md" &&
        grep -q "install .*/usr/local/lib/millrace .*gateway/limits.nft" "$root/terraform/THREE-MACHINES.md" &&
        grep -q '^ExecStart=.*/usr/local/lib/millrace/limits.nft$' "$root/$unit"; } || fail "THREE-MACHINES.md: strangers of one address can use up a gateway"
    { grep -q '^   sudo cp terraform/templates/sysctl.conf /etc/sysctl.d/60-millrace.conf$' "$root/terraform/THREE-MACHINES.md" &&
        grep -q '^   sudo systemctl restart systemd-sysctl$' "$root/terraform/THREE-MACHINES.md" &&
        grep -q '^     tar .* terraform/templates ' "$root/terraform/THREE-MACHINES.md"; } || fail "THREE-MACHINES.md: clients that connect and close leave a gateway without ports"
    local variable
    while read -r variable; do
        grep -q "^: \"\${$variable:=" "$root/gateway/gateway.sh" || fail "THREE-MACHINES.md: gateway.sh does not read $variable"
    done < <(grep -o 'GATEWAY_[A-Z_]*' "$folder/millrace-gateway.service")
    rm -rf "$folder"
    echo "three machines: ok"
}

# Checks the files that `make install` and `make deb` lay out. MILLRACE names the program.
check_packages() {
    local program=${MILLRACE:-$target/release/millrace} packaging=$root/services/millrace/packaging stage=$work/packages
    [ -x "$program" ] || { echo "SKIPPED: what the packages lay out: there is no $program; build it or set MILLRACE"; return 0; }
    rm -rf "$stage"
    mkdir -p "$stage"
    # As a person does whose new files nobody else may read.
    (umask 077 && "$packaging/stage.sh" "$program" "$stage/root" /usr/local)
    local hidden
    hidden=$(find "$stage/root" -not -perm -o=r -o -type d -not -perm -o=x | sed -n 1,3p)
    [ -z "$hidden" ] || fail "make install: other users cannot read $(xargs <<<"$hidden")"
    [ -e "$stage/root/usr/local/share/zsh/site-functions/_millrace" ] || fail "make install: zsh does not look there for completions"
    readelf --section-headers "$stage/root/usr/local/bin/millrace" >"$stage/sections" || fail "readelf cannot read the program (apt-get install binutils)"
    ! grep -q '\.debug_info' "$stage/sections" || fail "make install: the program is not stripped"
    # As release.sh lays out the tarball.
    "$packaging/stage.sh" "$program" "$stage/tarball" ''
    [ -x "$stage/tarball/bin/millrace" ] || fail "the tarball has no bin/millrace"
    mkdir -p "$stage/target/release"
    ln -s "$(realpath "$program")" "$stage/target/release/millrace"
    # The program is not built: -o.
    env -u MILLRACE make --silent --directory "$root" -o program install TARGET="$stage/target" DESTDIR="$stage/made" PREFIX=
    [ -x "$stage/made/bin/millrace" ] || fail "make install PREFIX= has no bin/millrace"
    if has dpkg-deb; then
        (umask 077 && DEB_COMPRESSION=none "$packaging/deb.sh" "$program" "$stage" 0 >/dev/null)
        local needed
        needed=$(objdump -T "$program" | grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -1)
        dpkg-deb --field "$stage"/millrace_0_*.deb Depends | grep -F "libc6 (>= ${needed#GLIBC_})" >/dev/null || fail "the package does not ask for the libc that its program needs: $needed"
        dpkg-deb --contents "$stage"/millrace_0_*.deb >"$stage/contents"
        grep -q '^drwxr-xr-x root/root .* \./$' "$stage/contents" || fail "the package gives the folder that it is extracted to another mode than 0755"
        hidden=$(grep -v '^.......r' "$stage/contents" | head -3) || true
        [ -z "$hidden" ] || fail "the package: other users cannot read $(xargs <<<"$hidden")"
        grep -q '/usr/share/zsh/vendor-completions/_millrace$' "$stage/contents" || fail "the package: zsh does not look there for completions"
    else
        echo "SKIPPED: the Debian package: dpkg-deb is not installed"
    fi
    rm -rf "$stage"
    echo "packages: ok"
}

# The web console is part of the program, and its libraries are components of a release.
check_release() {
    local packaging=$root/services/millrace/packaging folder=$work/release target_folder=$target target
    for target in install deb image release; do
        env -u MILLRACE make --dry-run --no-print-directory --directory "$root" "$target" | grep 'console.sh build' >/dev/null || fail "make $target: its program has no web console"
    done
    has cargo || { echo "SKIPPED: list of components: cargo is not installed"; return 0; }
    rm -rf "$folder"
    mkdir -p "$folder/console/dist/app"
    cp "$root/services/console/package-lock.json" "$folder/console/"
    touch "$folder/console/dist/app/index.html"
    components() { "$packaging/sbom.py" "$root" "$folder/console" "$1" | python3 -c 'import json, sys; print(*(part["purl"] for part in json.load(sys.stdin)["components"]), sep="\n")'; }
    components none >"$folder/none" || fail "sbom.py"
    grep -q '^pkg:cargo/rustls@' "$folder/none" || fail "list of components: it has no libraries of Rust"
    ! grep '^pkg:cargo/\(windows\|wasi\|foundationdb\)' "$folder/none" || fail "list of components: it names libraries that the program does not have"
    grep -q '^pkg:npm/%40mantine/core@' "$folder/none" || fail "list of components: it has no libraries of the console"
    ! grep '^pkg:npm/\(vite\|typescript\)@' "$folder/none" || fail "list of components: it names tools that build the console"
    components foundationdb >"$folder/foundationdb" || fail "sbom.py foundationdb"
    grep -q '^pkg:cargo/foundationdb@' "$folder/foundationdb" || fail "list of components: it has no client of FoundationDB"
    rm "$folder/console/dist/app/index.html"
    ! components none | grep '^pkg:npm/' || fail "list of components: it names the console of a program without one"
    local program=${MILLRACE:-$target_folder/release/millrace}
    [ -x "$program" ] || { echo "SKIPPED: files of a release: there is no $program; build it or set MILLRACE"; return 0; }
    has dpkg-deb || { echo "SKIPPED: files of a release: dpkg-deb is not installed"; return 0; }
    released "$program" "$packaging" "$folder"
    rm -rf "$folder"
    echo "release: ok"
}

# Makes a release twice, as a person does whose new files nobody else may read.
released() {
    local program=$1 packaging=$2 folder=$3 made
    for made in first second; do
        (umask 077 && DEB_COMPRESSION=none nice "$packaging/release.sh" "$program" "$folder/$made" >/dev/null) || fail "release.sh"
    done
    (
        cd "$folder/first"
        [ "$(cut -c67- SHA256SUMS | sed 's/.*\.\(tar\.gz\|cdx\.json\|deb\)$/\1/' | sort | xargs)" = "cdx.json deb tar.gz" ] || fail "SHA256SUMS names: $(cut -c67- SHA256SUMS | xargs)"
        [ "$(find . -type f | wc -l)" = 4 ] || fail "a release has other files than SHA256SUMS names"
        sha256sum --check --quiet SHA256SUMS || fail "SHA256SUMS"
        cmp ./*.tar.gz ../second/*.tar.gz || fail "two releases of the same program have different archives"
        mkdir archive
        tar -xzf ./*.tar.gz -C archive --strip-components=1
        [ "$(archive/bin/millrace -V)" = "$("$program" -V)" ] || fail "the archive has another program"
        for made in LICENSE README.md millrace.service; do [ -s "archive/$made" ] || fail "the archive has no $made"; done
        made=$(find archive -not -perm -o=r -o -type d -not -perm -o=x | sed -n 1,3p)
        [ -z "$made" ] || fail "other users cannot read what is in the archive: $(xargs <<<"$made")"
    )
}

# The image that `make image` makes, as a server. MILLRACE names the program.
check_image() {
    local program=${MILLRACE:-$target/release/millrace}
    [ -x "$program" ] || { echo "SKIPPED: the image: there is no $program; build it or set MILLRACE"; return 0; }
    "$root/services/millrace/packaging/image_test.sh" "$program" || fail "image"
}

check_costs() {
    has python3 || { echo "SKIPPED: costs on the pages: python3 is not installed"; return 0; }
    python3 -B "$here/costs.py" "$root" || fail "a cost on a page is not what the capacity model says"
}

check_chart() {
    [ -d "$root/terraform/chart" ] || return 0
    "$here/chart.sh" || fail "chart"
}

# MILLRACE and ENVOY name the programs.
check_drain() {
    "$here/tools.sh" chart
    "$here/drain.sh" || fail "drain"
}

check_kubernetes() { "$here/kubernetes.sh" || fail "kubernetes"; }

# The Debian package on a booted Debian.
check_deb() {
    local program=${MILLRACE:-$target/release/millrace}
    [ -x "$program" ] || { echo "SKIPPED: the Debian package: there is no $program; build it or set MILLRACE"; return 0; }
    "$root/services/millrace/packaging/deb_test.sh" "$program" || fail "deb"
}

# NATS_SERVER and ENVOY name the programs.
check_region() {
    local program
    for program in "${MILLRACE:-$target/release/millrace}" "${NATS_SERVER:-$tools/nats-server}" "${ENVOY:-$target/envoy/bin/envoy}"; do
        [ -x "$program" ] || { echo "SKIPPED: the machines of a region: there is no $program; make check-region makes it"; return 0; }
    done
    "$here/region/region.sh" || fail "region"
}

# Units of the provider for tenants, then the real terraform with it against a server of its own. PROVIDER_TESTS selects tests.
check_provider() {
    local program=${MILLRACE:-$target/release/millrace} provider=$target/provider/terraform-provider-millrace
    has go || { echo "SKIPPED: the provider for tenants is built with Go, which is not here: https://go.dev/dl"; return 0; }
    has terraform || { echo "SKIPPED: the provider for tenants: terraform is not installed"; return 0; }
    [ -x "$program" ] || { echo "SKIPPED: the provider for tenants: there is no $program; build it or set MILLRACE"; return 0; }
    local selected=()
    read -r -a selected <<<"${PROVIDER_TESTS:-}"
    (
        # Not by `set -e`, which bash ignores on the left of `||`.
        cd "$root/terraform/provider" &&
            nice go build -p 1 -o "$provider" . &&
            nice go test -p 1 ./internal/... &&
            TF_ACC=1 MILLRACE=$program PROVIDER=$provider nice go test -p 1 -count=1 -timeout 30m "${selected[@]}" ./acceptance
    ) || fail "provider"
}

all=(format shell commands nightly three packages release image costs boot units secrets artifacts database contract telemetry lint validate test policy chartpolicy negative chart drain kubernetes interrupted apply deb region provider)
[ $# -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do
    [[ " ${all[*]} " == *" $name "* ]] || fail "\"$name\" is unknown: ${all[*]} are allowed"
done

run() {
    "$here/tools.sh" debian
    local name
    for name in "$@"; do "check_$name"; done
}

# A file of its own, because negative.sh runs this script again.
said=$(mktemp)
trap 'rm -f "$said"' EXIT
run "$@" | tee "$said"
skipped=$(grep -c '^SKIPPED' "$said" || true)
[ "${STRICT:-}" != 1 ] || [ "$skipped" = 0 ] || { grep '^SKIPPED' "$said" >&2; fail "$skipped checks were skipped, and STRICT is set"; }
echo "check-deploy: passed, $skipped skipped"
