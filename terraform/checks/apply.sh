#!/usr/bin/env bash
# Applies examples against moto, reads what is exposed, plans again without a difference, finds a drift, upgrades a machine, and destroys them.
#
#   terraform/checks/apply.sh [small production multi-region]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
# Another port and folder are for a run beside this one.
: "${PORT:=24055}"
work=$target/deploy/apply-$PORT
mkdir -p "$work"
# shellcheck disable=SC1091,SC2154 # moto.sh beside this one sets moto, copy, example, zone
source "$here/moto.sh"

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

# shellcheck disable=SC2154 # prepare sets example
# tf COMMAND ARGUMENTS...: its output goes to a file, of which the end is shown when it fails. Terraform gives a provider a minute to
# start, which a busy machine exceeds, and moto once answered with InvalidPermission.NotFound at the end of a destroy: the same command
# is then repeated, three times at most.
tf() {
    local code try
    for try in 1 2 3; do
        code=0
        nice -n 5 timeout 3600 terraform -chdir="$example" "$1" -no-color -input=false "${@:2}" >"$work/$1.log" 2>&1 || code=$?
        [ "$code" = 1 ] && [ "$try" -lt 3 ] && { slow_start <"$work/$1.log" || grep -o InvalidPermission.NotFound "$work/$1.log"; } || return "$code"
        echo "NOTE: terraform $1 is repeated"
    done
}

# plan EXPECTED WHAT: 0 is an empty plan, 2 one with changes. Another code is an error of the plan itself.
plan() {
    local code=0
    tf plan -detailed-exitcode || code=$?
    [ "$code" = "$1" ] && return 0
    grep -E '^  +[~+#-]|^Error' "$work/plan.log" | sed -n 1,40p
    case $code in
    0 | 2) fail "$2" ;;
    *) fail "terraform plan ends with $code" ;;
    esac
}

check() {
    prepare "$1" || fail "$1: init"
    local begin=$SECONDS
    tf apply -auto-approve -parallelism=20 || { tail -40 "$work/apply.log"; fail "$1: apply"; }
    grep '^Apply complete' "$work/apply.log" | sed "s/^/$1: /"
    [ "$1" != small ] || exposure
    plan 0 "$1: the second plan is not empty"
    echo "$1: the second plan is empty"
    [ "$1" != small ] || { drift; refusal; upgrade; }
    tf destroy -auto-approve -parallelism=20 || { tail -40 "$work/destroy.log"; fail "$1: destroy"; }
    grep '^Destroy complete' "$work/destroy.log" | sed "s/^/$1: /"
    echo "$1: $((SECONDS - begin)) s"
}

# Lists what an attacker can reach and read, and fails if that is more than it should be.
exposure() {
    terraform -chdir="$example" show -json >"$work/state.json"
    "$tools/deploy-python/bin/python" "$here/exposure.py" millrace-small <"$work/state.json" || fail "small: the region shows more than it should"
}

# Somebody takes a rule of a security group away by hand: the next plan must say so.
drift() {
    "$tools/deploy-python/bin/python" - <<'PY'
import boto3

client = boto3.client("ec2")
group = client.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["millrace-small-edge"]}])
rules = client.describe_security_group_rules(
    Filters=[{"Name": "group-id", "Values": [group["SecurityGroups"][0]["GroupId"]]}]
)["SecurityGroupRules"]
rule = next(rule for rule in rules if not rule["IsEgress"])
client.revoke_security_group_ingress(
    GroupId=rule["GroupId"], SecurityGroupRuleIds=[rule["SecurityGroupRuleId"]]
)
PY
    plan 2 "small: a rule that was taken away by hand is not seen"
    echo "small: a drift is seen: $(grep '^Plan:' "$work/plan.log")"
}

# refused WHAT TEXT: the plan must fail, and say so.
refused() {
    ! tf plan || fail "small: a plan $1"
    sed 's/│//g' "$work/plan.log" | tr -s ' \n' ' ' | grep -F "$2" >/dev/null || { tail -30 "$work/plan.log"; fail "small: a plan that $1 does not say: $2"; }
}

# Plans that would replace or end machines of FoundationDB with their disks: in one zone instead of three, and with fewer machines than AWS has.
refusal() {
    # shellcheck disable=SC2154 # prepare sets example
    cp "$example/main.tf" "$work/main.tf"
    sed -i 's/^  availability_zones = .*/  availability_zones = ["eu-central-1a"]/' "$example/main.tf"
    refused "moves machines to another zone" 'as they were when the network was made: 10.40.0.0/16 and eu-central-1a, eu-central-1b, eu-central-1c,'
    cp "$work/main.tf" "$example/main.tf"
    "$tools/deploy-python/bin/python" - <<'PY'
import boto3

client = boto3.client("ec2")
is_first = [{"Name": "tag:Name", "Values": ["millrace-small-foundationdb-1"]}, {"Name": "instance-state-name", "Values": ["running"]}]
first = client.describe_instances(Filters=is_first)["Reservations"][0]["Instances"][0]
tags = [{"Key": "millrace-region", "Value": "millrace-small"}, {"Key": "millrace-role", "Value": "foundationdb"}, {"Key": "Name", "Value": "fourth"}]
client.run_instances(
    ImageId=first["ImageId"], MinCount=1, MaxCount=1, SubnetId=first["SubnetId"], PrivateIpAddress="10.40.0.13",
    TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
)
PY
    refused "ends a machine that has data" 'whose data nobody has moved: 10.40.0.13.'
    "$tools/deploy-python/bin/python" - <<'PY'
import boto3

client = boto3.client("ec2")
fourth = client.describe_instances(Filters=[{"Name": "tag:Name", "Values": ["fourth"]}])["Reservations"][0]["Instances"][0]
client.terminate_instances(InstanceIds=[fourth["InstanceId"]])
PY
    echo "small: plans that would replace or end machines of FoundationDB are refused"
}

# shellcheck disable=SC2154 # prepare sets copy
# New user data and a larger type of NATS: a plan neither replaces nor stops a server, and names those that differ; -replace gives one
# server the new user data and type.
upgrade() {
    local nats='module.region.module.nats.aws_instance.this'
    sed -i 's/^max_payload: 8MB$/max_payload: 4MB/' "$copy/terraform/modules/nats/files/nats.conf.tftpl"
    # shellcheck disable=SC2154 # prepare sets example
    sed -i 's/nats  *= { type = "t3.small", /nats = { type = "t3.medium", /' "$example/main.tf"
    grep -q 'nats = { type = "t3.medium"' "$example/main.tf" || fail "examples/small names the type of NATS in another way"
    tf apply -auto-approve || { tail -40 "$work/apply.log"; fail "small: apply of new user data and a larger type"; }
    ! grep -qF "$nats" <(grep -E 'Destroying|Creating|Modifying' "$work/apply.log") || fail "small: new user data or a larger type stops all NATS machines at once"
    grep -qF 'Another type, or an older image or user data: nats-1, nats-2, nats-3.' "$work/apply.log" || fail "small: a plan does not name the machines to replace"
    # Not applied: moto keeps the address of a machine that is gone.
    tf plan -out="$work/replace.plan" -replace "${nats}[\"nats-2\"]" || { tail -40 "$work/plan.log"; fail "small: -replace"; }
    terraform -chdir="$example" show -json "$work/replace.plan" >"$work/replace.json"
    python3 - "$work/replace.json" "${nats}[\"nats-2\"]" <<'PY' || fail "small: -replace"
import json, sys

changes = [it for it in json.load(open(sys.argv[1]))["resource_changes"] if it["change"]["actions"] != ["no-op"]]
assert [it["address"] for it in changes] == [sys.argv[2]], f"-replace changes {[it['address'] for it in changes]}"
change = changes[0]["change"]
assert change["actions"] == ["delete", "create"], change["actions"]
assert change["before"]["user_data_base64"] != change["after"]["user_data_base64"], "the replaced machine has no new user data"
assert change["after"]["instance_type"] == "t3.medium", "the replaced machine has the old type"
PY
    echo "small: an upgrade replaces one machine after another"
}

[ -x "$tools/deploy-python/bin/moto_server" ] || "$here/tools.sh" python
start_moto "$PORT" || fail "moto does not start"
# shellcheck disable=SC2154 # start_moto sets it
trap 'kill "$moto"' EXIT
settings=$(account)
eval "$settings"
[ $# -gt 0 ] || set -- small production multi-region
for name in "$@"; do check "$name"; done
