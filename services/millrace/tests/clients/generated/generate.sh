#!/usr/bin/env bash
# Generates a Go, a TypeScript and a Python client from openapi.json with three independent generators, and compiles
# them with their drivers, into target/generated. Nothing is done again until one of the files that it reads changes.
#
#   services/millrace/tests/clients/generated/generate.sh
#
# A language that is not here is said to be missing: SKIPPED.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/generated
tools=$target/tools
openapi=$root/services/control/openapi.json
mkdir -p "$work"

has() { command -v "$1" >/dev/null 2>&1; }
# skip LANGUAGE REASON: an older client of the language is not run then.
skip() { rm -f "$work/$1.sha256" && echo "SKIPPED: generated: the $1 client: $2"; }
# Runs a program and shows what it said only when it failed.
quiet() { "$@" >"$work/log" 2>&1 || { tail -40 "$work/log"; echo "FAILED: generated: $*" | cut -c1-200; return 1; }; }

# is_new LANGUAGE FILES...: whether something that the client of a language is made of has changed.
is_new() {
    wanted=$(cat "$openapi" "$here/generate.sh" "${@:2}" | sha256sum)
    [ "$(cat "$work/$1.sha256" 2>/dev/null)" != "$wanted" ] || return 1
    echo "generating the $1 client"
    rm -rf "$work/$1.sha256" "${work:?}/$1"
    mkdir -p "$work/$1"
}
done_with() { echo "$wanted" >"$work/$1.sha256"; }

install_generators() {
    ! cmp -s "$here/requirements.txt" "$work/generators/installed.txt" || return 0
    echo "installing the generators of TypeScript and Python clients"
    rm -rf "$work/generators"
    python3 -m venv "$work/generators" >"$work/log" 2>&1 \
        && "$work/generators/bin/pip" install --disable-pip-version-check --no-deps --require-hashes -r "$here/requirements.txt" \
            >"$work/log" 2>&1 \
        && cp "$here/requirements.txt" "$work/generators/installed.txt"
}

go_client() {
    has go || { skip go "go is not installed"; return 0; }
    "$root/terraform/checks/tools.sh" provider || { skip go "oapi-codegen cannot be installed here"; return 0; }
    is_new go "$here"/go/* "$root/terraform/checks/tools.sh" || return 0
    mkdir -p "$work/go/millrace"
    cp "$here"/go/* "$work/go"
    (cd "$work/go" && go mod download) || { skip go "its modules cannot be downloaded here"; return 0; }
    quiet "$tools/oapi-codegen" -package millrace -generate models,client -o "$work/go/millrace/client.go" "$openapi"
    (cd "$work/go" && quiet go vet ./... && quiet go build -o driver .)
    done_with go
}

typescript_client() {
    has npm && has node || { skip typescript "npm and node are not installed"; return 0; }
    is_new typescript "$here"/typescript/* "$here/requirements.txt" || return 0
    cp "$here"/typescript/* "$work/typescript"
    npm ci --prefix "$work/typescript" --no-audit --no-fund --ignore-scripts >"$work/log" 2>&1 || {
        tail -5 "$work/log"
        skip typescript "its compiler cannot be installed here (npm ci)"
        return 0
    }
    PATH=$work/generators/bin:$PATH quiet openapi-generator-cli generate --generator-name typescript-fetch \
        --input-spec "$openapi" --output "$work/typescript/millrace" \
        --global-property apis,models,supportingFiles,apiDocs=false,modelDocs=false
    quiet "$work/typescript/node_modules/.bin/tsc" --project "$work/typescript"
    done_with typescript
}

python_client() {
    is_new python "$here"/python/* "$here/python.yaml" "$here/requirements.txt" || return 0
    cp "$here"/python/* "$work/python"
    # The generator formats with ruff, which is in the same folder. A warning is an operation that it left out.
    PATH=$work/generators/bin:$PATH quiet openapi-python-client generate --path "$openapi" \
        --output-path "$work/python/millrace" --meta none --fail-on-warning --config "$here/python.yaml"
    (cd "$work/python" && quiet "$work/generators/bin/python" -c '
import importlib, pkgutil, millrace
for it in pkgutil.walk_packages(millrace.__path__, "millrace."):
    importlib.import_module(it.name)')
    done_with python
}

go_client
if install_generators; then
    typescript_client
    python_client
else
    tail -5 "$work/log"
    for language in typescript python; do skip "$language" "its generator cannot be installed here (python3 -m venv, pip)"; done
fi
