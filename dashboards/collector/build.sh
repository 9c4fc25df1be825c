#!/usr/bin/env bash
# Builds the collector of manifest.yaml into TOOLS/otelcol, once for each change of the manifest.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=${1:?build.sh TOOLS}
mkdir -p "$tools"
tools=$(realpath "$tools")
version=$(sed -nE 's/^ *version: //p' "$here/manifest.yaml")

if cmp -s "$here/manifest.yaml" "$tools/otelcol.yaml" && [ -x "$tools/otelcol" ]; then exit 0; fi
command -v go >/dev/null || { echo "the collector is built with Go, which is not here: https://go.dev/dl" >&2; exit 1; }

echo "building the OpenTelemetry Collector $version: this takes several minutes"
builder=$tools/builder-$version
if [ ! -x "$builder" ]; then
    GOBIN=$tools go install "go.opentelemetry.io/collector/cmd/builder@v$version"
    mv "$tools/builder" "$builder"
fi
work=$tools/otelcol.build
rm -rf "$work" && mkdir -p "$work"
# The builder writes paths relative to its own folder; the manifest names none.
sed "s|^dist:|dist:\n  output_path: $work|" "$here/manifest.yaml" >"$work.yaml"
# `go mod tidy`, which the builder would run, also asks for what only the tests of these modules need, and fails where a registry
# lacks one of them. `go build` adds what the collector itself needs; versions follow from the manifest alone.
"$builder" --config "$work.yaml" --skip-get-modules --skip-compilation
(cd "$work" && go mod init otelcol-millrace 2>/dev/null \
    && sed -nE 's/^ *- gomod: ([^ ]+) ([^ ]+)$/-require=\1@\2/p' "$here/manifest.yaml" | xargs go mod edit)
tags=$(sed -nE 's/^ *build_tags: //p' "$here/manifest.yaml")
(cd "$work" && CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags '-s -w' -tags "$tags" -o "$tools/otelcol" .)
cp "$here/manifest.yaml" "$tools/otelcol.yaml"
rm -rf "$work" "$work.yaml"
