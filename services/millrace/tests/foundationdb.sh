#!/usr/bin/env bash
# The server on the cluster of FDB_CLUSTER_FILE: several processes with real clients, then the torture test with kills of the server
# and of the cluster. KILLS says how many. For `make test-fdb`, by `storage/tests/foundationdb.sh with`.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../.."
cargo build --release --package millrace --features millrace/foundationdb
cargo build --release --package millrace-torture
release=${CARGO_TARGET_DIR:-target}/release
SERVER_BIN=$release/millrace services/millrace/tests/pods.sh
"$release/torture" --millrace-bin "$release/millrace" --kills "${KILLS:-20}" --fdb-cluster-file "$FDB_CLUSTER_FILE" \
    --fdb-kill "storage/tests/foundationdb.sh kill $FDB_TEST_FOLDER"
