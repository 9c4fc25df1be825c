#!/usr/bin/env bash
# Builds and checks the console. The build and the install are skipped while their inputs are the same.
#
#   services/console/console.sh build     into dist/app, which the millrace crate puts into its binary
#   services/console/console.sh lint      types, style, the client of the API
#   services/console/console.sh test      the tests of its logic
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

node_major_min=20

# Without npm the server is still built; its start page says what is missing.
has_node() {
    command -v npm >/dev/null && command -v node >/dev/null || { reason="npm is not installed"; return 1; }
    local major
    major=$(node -p 'process.versions.node.split(".")[0]')
    [ "$major" -ge "$node_major_min" ] || { reason="node $(node --version) is older than $node_major_min"; return 1; }
}

# The inputs of the build: it is skipped while their contents are the same.
sources() { find src public scripts index.html vite.config.ts tsconfig.json package-lock.json ../control/openapi.json ../control/operator.openapi.json operator.html -type f ! -name schema.d.ts "$@"; }
digest() { sources -print0 | sort -z | xargs -0 sha256sum | sha256sum; }

install() {
    cmp -s package-lock.json node_modules/.installed && return
    # Not `npm ci`: it refuses a lock file without the optional packages of other platforms, which not every registry has.
    npm install --no-save --no-audit --no-fund --ignore-scripts --loglevel=error
    cp package-lock.json node_modules/.installed
}

build() {
    local wanted
    wanted=$(digest)
    [ "$(cat dist/app.sha256 2>/dev/null)" = "$wanted" ] && [ -e dist/app/index.html ] && return
    install
    npm run --silent build
    echo "$wanted" >dist/app.sha256
}

if ! has_node; then
    echo "SKIPPED: the console ($1): $reason; install Node.js $node_major_min or newer with npm"
    exit 0
fi
case $1 in
build) build ;;
lint) install && npm run --silent lint ;;
test) install && npm run --silent test ;;
*)
    echo "usage: console.sh build|lint|test" >&2
    exit 2
    ;;
esac
