#!/usr/bin/env bash
# Installs the pinned tools of the deployment checks into target/tools. Running it again costs nothing.
#
#   terraform/checks/tools.sh python        moto, checkov
#   terraform/checks/tools.sh tflint
#   terraform/checks/tools.sh chart         helm, kubeconform
#   terraform/checks/tools.sh provider      oapi-codegen
#   terraform/checks/tools.sh operator      the operators' own command line (aws)
#   INSTALL=1 terraform/checks/tools.sh debian    packages of Debian: shellcheck, promtool, readelf, buildah, MQTT clients
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=${CARGO_TARGET_DIR:-$root/target}/tools

# go_tool PROGRAM MODULE VERSION
go_tool() {
    local mark=$tools/.$1-$3
    [ ! -e "$mark" ] || return 0
    command -v go >/dev/null || { echo "SKIPPED: $1 is installed with Go, which is not here: https://go.dev/dl"; return 0; }
    echo "installing $1 $3"
    (cd "$tools" && GOBIN=$tools nice -n 10 go install "$2@$3")
    rm -f "$tools/.$1-"*
    touch "$mark"
}

# python_tools FOLDER REQUIREMENTS
python_tools() {
    local venv=$tools/$1
    ! cmp -s "$here/$2" "$venv/installed.txt" || return 0
    echo "installing $2"
    python3 -m venv "$venv"
    nice -n 10 "$venv/bin/pip" install --disable-pip-version-check --quiet -r "$here/$2"
    cp "$here/$2" "$venv/installed.txt"
}

# debian_packages PROGRAM=PACKAGE...: names what is missing, and with INSTALL=1 installs it as root. The checks say what they then skip.
debian_packages() {
    local pair missing=()
    for pair in "$@"; do
        PATH=$PATH:/usr/sbin command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ "${#missing[@]}" -gt 0 ] && command -v apt-get >/dev/null || return 0
    { [ "${INSTALL:-}" = 1 ] && [ "$(id -u)" = 0 ]; } || { echo "not installed: ${missing[*]} (root may install them with INSTALL=1)"; return 0; }
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq "${missing[@]}" >/dev/null \
        || echo "not installed: ${missing[*]}: apt-get cannot fetch them from here" >&2
}

mkdir -p "$tools"
for part in "$@"; do
    case $part in
    python) python_tools deploy-python requirements.txt ;;
    tflint) go_tool tflint github.com/terraform-linters/tflint v0.64.0 ;;
    provider) go_tool oapi-codegen github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen v2.8.2 ;;
    # Apart, because it wants another botocore than checkov.
    operator) python_tools deploy-aws requirements-operator.txt ;;
    debian)
        debian_packages shellcheck=shellcheck promtool=prometheus readelf=binutils buildah=buildah \
            mosquitto_sub=mosquitto-clients
        ;;
    chart)
        go_tool helm helm.sh/helm/v3/cmd/helm v3.22.0
        go_tool kubeconform github.com/yannh/kubeconform/cmd/kubeconform v0.8.0
        ;;
    *)
        echo "tools.sh: \"$part\" is unknown: python, tflint, chart, provider, operator or debian is allowed" >&2
        exit 2
        ;;
    esac
done
