#!/usr/bin/env bash
# Generates internal/api/types.gen.go and operations.gen.go from services/control/openapi.json.
#
#   terraform/provider/generate.sh           writes the files
#   terraform/provider/generate.sh --check   fails when the files are not what would be written
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/provider
mkdir -p "$work"

"$root/terraform/checks/tools.sh" provider
[ -x "$target/tools/oapi-codegen" ] || exit 0

# Decision 0001: the generator cannot read every part of the description, so only the operations that the provider calls are kept.
python3 "$here/internal/api/describe.py" "$root/services/control/openapi.json" "$here/internal/api/operations.txt" \
    "$work/openapi.json" "$work/operations.gen.go"
"$target/tools/oapi-codegen" -config "$here/internal/api/oapi-codegen.yaml" -o "$work/types.gen.go" "$work/openapi.json"
gofmt -w "$work/operations.gen.go"
for name in types operations; do
    if [ "${1:-}" = --check ]; then
        diff -u "$here/internal/api/$name.gen.go" "$work/$name.gen.go" || {
            echo "generate.sh: openapi.json has changed: run terraform/provider/generate.sh" >&2
            exit 1
        }
    else
        cp "$work/$name.gen.go" "$here/internal/api/$name.gen.go"
    fi
done
