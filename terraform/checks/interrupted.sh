#!/usr/bin/env bash
# Interrupts an apply against moto, and has the next one finish it with orphans.py: a part of `make check-deploy`.
#
# The provider cancels its calls when somebody presses Ctrl-C. AWS, and moto, may have made the rule by then, so it is there and not in the state.
# An interruption does not always come at that moment, so this check takes one rule out of the state itself.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
: "${PORT:=24057}"
work=$target/deploy/interrupted-$PORT
rm -rf "$work"
mkdir -p "$work"
# shellcheck disable=SC1091 # beside this one
source "$here/moto.sh"

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

tf() { nice terraform -chdir="$work" "$1" -no-color -input=false "${@:2}"; }

in_state() { terraform -chdir="$work" state list | grep -c ingress_rule; }

in_aws() { "$tools/deploy-aws/bin/aws" ec2 describe-security-group-rules --output text --query 'length(SecurityGroupRules[?!IsEgress])'; }

# interrupt: an apply gets SIGINT after its tenth rule; interrupted/main.tf has 60.
interrupt() {
    local applying code=0
    # Without `nice` before it, so that $! is Terraform.
    terraform -chdir="$work" apply -no-color -input=false -auto-approve -parallelism=20 >"$work/first.log" 2>&1 &
    applying=$!
    until [ "$(grep -c 'between.*Creation complete' "$work/first.log")" -ge 10 ]; do
        kill -0 "$applying" 2>/dev/null || { tail -5 "$work/first.log"; fail "the apply ended before it was interrupted"; }
        sleep 0.1
    done
    kill -INT "$applying"
    wait "$applying" || code=$?
    [ "$code" != 0 ] || fail "the apply was not interrupted"
}

"$here/tools.sh" python operator
export TF_IN_AUTOMATION=1 TF_CLI_CONFIG_FILE=/dev/null
cp "$here/interrupted/main.tf" "$work/"
start_moto "$PORT" || fail "moto does not start"
# shellcheck disable=SC2154 # start_moto sets it
trap 'kill "$moto"' EXIT
# moto loads what it needs for EC2, which takes a busy machine a minute.
"$tools/deploy-aws/bin/aws" ec2 describe-vpcs --cli-read-timeout 600 >/dev/null
tf init ${TERRAFORM_PLUGINS:+-plugin-dir="$TERRAFORM_PLUGINS"} >"$work/init.log" 2>&1 || { tail -5 "$work/init.log"; fail "init"; }
interrupt
echo "interrupted: $(in_aws) rules are there, $(in_state) of them in the state"
rule=$(terraform -chdir="$work" state list | sed -n '/ingress_rule/{p;:a;n;ba}')
terraform -chdir="$work" state rm "$rule" >/dev/null
! tf apply -auto-approve >"$work/second.log" 2>&1 || fail "a rule is made twice"
grep -q 'InvalidPermission.Duplicate' "$work/second.log" || { tail -5 "$work/second.log"; fail "the second apply"; }
tf plan -out=plan >"$work/plan.log" 2>&1 || { tail -5 "$work/plan.log"; fail "plan"; }
imports=$(terraform -chdir="$work" show -json plan | PATH=$tools/deploy-aws/bin:$PATH "$root/terraform/orphans.py")
grep -qF "$rule" <<<"$imports" || fail "orphans.py does not find $rule: $imports"
(cd "$work" && eval "$imports") >"$work/imports.log" 2>&1 || { tail -5 "$work/imports.log"; fail "terraform import"; }
tf apply -auto-approve >"$work/third.log" 2>&1 || { tail -5 "$work/third.log"; fail "the apply after the imports"; }
[ "$(in_aws) $(in_state)" = "60 60" ] || fail "$(in_aws) rules are there, and $(in_state) in the state, of 60"
tf plan -detailed-exitcode >"$work/plan.log" 2>&1 || { tail -5 "$work/plan.log"; fail "the plan after the apply is not empty"; }
echo "interrupted apply: $(wc -l <<<"$imports") forgotten rules were found and taken into the state, and the next plan is empty"
