# Sourced by the checks: moto's server on loopback stands in for AWS, and one example is worked on in a copy.
# shellcheck shell=bash disable=SC2154 # root, tools and work come from the script that reads this

# Where the AWS provider lies, if it is not to be fetched: a folder with registry.terraform.io in it.
: "${TERRAFORM_PLUGINS:=}"
if [ -z "$TERRAFORM_PLUGINS" ]; then
    for folder in /opt/tf-plugins "$HOME/.terraform.d/plugins" /usr/local/share/terraform/plugins; do
        [ ! -d "$folder/registry.terraform.io/hashicorp/aws" ] || TERRAFORM_PLUGINS=$folder
    done
fi

# Prints why a provider did not start, if Terraform's output says it: over two lines, of 78 characters each.
slow_start() { tr -s '\n ' ' ' | grep -ao 'timeout while waiting for plugin to start'; }

# moto writes nothing to disk, and forgets all when it ends.
start_moto() {
    export AWS_ENDPOINT_URL=http://127.0.0.1:$1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
    export AWS_EC2_METADATA_DISABLED=true AWS_REGION=eu-central-1 AWS_DEFAULT_REGION=eu-central-1
    "$tools/deploy-python/bin/moto_server" --host "${2:-127.0.0.1}" --port "$1" >"$work/moto.log" 2>&1 &
    moto=$!
    local tries=0
    until curl -fs "$AWS_ENDPOINT_URL/moto-api/data.json" >/dev/null; do
        kill -0 "$moto" 2>/dev/null || { tail -5 "$work/moto.log"; return 1; }
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || return 1
        sleep 0.1
    done
}

# Creates the hosted zone and the image that an account has before Terraform. Prints NAME=value lines for Terraform.
account() {
    "$tools/deploy-python/bin/python" - <<'PY'
import boto3

zone = boto3.client("route53").create_hosted_zone(Name="mqtt.example.org", CallerReference="checks")
for region, name in [("eu-central-1", "eu"), ("us-east-1", "us")]:
    images = boto3.client("ec2", region_name=region).describe_images(Owners=["amazon"])["Images"]
    image = sorted(image["ImageId"] for image in images if image["Architecture"] == "x86_64")[0]
    print(f"image_{name}={image}")
print("zone=" + zone["HostedZone"]["Id"].rsplit("/", 1)[-1])
PY
}

# prepare EXAMPLE: copies the modules and the example, and points the copy at moto.
prepare() {
    copy=$work/copy
    rm -rf "$copy"
    mkdir -p "$copy"
    mkdir -p "$copy/dashboards" "$copy/services/millrace/docs"
    cp "$root/services/millrace/docs/settings.md" "$copy/services/millrace/docs/"
    cp -r "$root/terraform" "$root/gateway" "$copy/"
    cp -r "$root/dashboards/prometheus" "$root/dashboards/collector" "$copy/dashboards/"
    example=$copy/terraform/examples/$1
    export TF_DATA_DIR=$work/data-$1 TF_IN_AUTOMATION=1 TF_CLI_CONFIG_FILE=/dev/null
    # Buckets are no host names on loopback.
    printf 'provider "aws" {\n  s3_use_path_style = true\n}\n' >"$example/moto_override.tf"
    [ "$1" != multi-region ] || cat >>"$example/moto_override.tf" <<'HCL'
provider "aws" {
  alias             = "us"
  s3_use_path_style = true
}
HCL
    leave_out
    variables "$1" >"$example/terraform.tfvars.json"
    terraform -chdir="$example" init -input=false -no-color ${TERRAFORM_PLUGINS:+-plugin-dir="$TERRAFORM_PLUGINS"} >"$work/init.log" 2>&1 \
        || { tail -20 "$work/init.log"; return 1; }
}

# Removes from the copy what moto does not support, and prints each removal. `terraform validate` still checks the
# original against the provider's schema.
leave_out() {
    local main=$copy/terraform/modules
    left 'monitoring of aws_instance (no MonitorInstances)' '/^  monitoring  *= true$/d' "$main"/*/main.tf
    left 'associate_public_ip_address of aws_instance (always true there)' '/^  associate_public_ip_address  *= /d' "$main"/*/main.tf
    left 'description of a rule between two groups (not given back)' '/"\(between\|s3\)" {/,/^}/{/^  description /d}' "$main/access/main.tf"
    left 'default_instance_warmup of aws_autoscaling_group (not kept)' '/^  default_instance_warmup  *= /d' "$main/group/main.tf"
    left 'aws_autoscaling_policy (always disabled there)' '/^resource "aws_autoscaling_policy"/,/^}/d' "$main/group/main.tf"
    left 'a look at changes of tag_specifications (its own tags are given back there)' \
        's/^  monitoring { enabled = true }$/&\n  lifecycle { ignore_changes = [tag_specifications] }/' "$main/group/main.tf"
    left 'a look at the security groups of machines with a fixed address (not given back)' \
        's/^  lifecycle { ignore_changes = \[ami, instance_type, user_data_base64\] }$/  lifecycle { ignore_changes = [ami, instance_type, user_data_base64, vpc_security_group_ids] }/' \
        "$main/foundationdb/main.tf" "$main/nats/main.tf"
    left 'a look at the security groups of the telemetry machine (the same)' \
        's/^  ebs_optimized  *= true$/&\n  lifecycle { ignore_changes = [vpc_security_group_ids] }/' "$main/telemetry/main.tf"
}

# left TEXTS SED FILES...: a pattern that matches nothing is a mistake of this list.
left() {
    local before
    before=$(cat "${@:3}" | md5sum)
    sed -i "$2" "${@:3}"
    [ "$before" != "$(cat "${@:3}" | md5sum)" ] || { echo "moto.sh: nothing to leave out for: $1"; return 1; }
    echo "NOTE: applied without $1: moto lacks it"
}

variables() {
    # shellcheck disable=SC2154 # from account
    "$tools/deploy-python/bin/python" - "$1" "$zone" "$image_eu" "$image_us" <<'PY'
import json, sys

example, zone, eu, us = sys.argv[1:]
names = ["millrace", "foundationdb_clients", "foundationdb_server", "nats_server", "envoy", "prometheus", "node_exporter", "otelcol"]
values = {
    "domain": "mqtt.example.org",
    "zone_id": zone,
    "is_protected": False,
    "artifacts": {name: {"key": name.replace("_", "-"), "sha256": "0" * 64} for name in names},
}
values |= {"ami_ids": {"eu": eu, "us": us}} if example == "multi-region" else {"ami_id": eu}
print(json.dumps(values))
PY
}
