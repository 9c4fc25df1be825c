#!/usr/bin/env bash
# Runs the workload in FoundationDB's simulator, seed after seed. Settings are environment
# variables:
#
# SEEDS              how many seeds (20), beginning with FIRST (1); or SEED for a single one
# SECONDS_SIMULATED  simulated seconds for which pods work (90); faults end after two thirds, so that some work gets done
# PLANT              a bug of `Plant` in src/plan.rs, such as index or fence; the run fails unless a seed finds it
# NICE               priority of the simulator (15), as in nice(1)
# TRACES             a folder that gets the traces of failed seeds
# FDBSERVER          the simulator (fdbserver on PATH); its version must be that of libfdb_c, whose folder
#                    FDB_CLIENT_LIB_PATH names
#
# For each seed it prints a line: simulated seconds, actions, faults of the simulator, violations,
# and the command that repeats the seed. If something is missing on this machine, it prints a line
# that starts with SKIPPED.
set -uo pipefail
root=$(cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../.." && pwd)
PATH=$PATH:/usr/sbin:/usr/local/sbin
target=${CARGO_TARGET_DIR:-$root/target}
seconds=${SECONDS_SIMULATED:-90}
plant=${PLANT:-none}

# Events of the simulator's trace that are faults, and what they are.
declare -A faults=(
    [KillMachine]="machines killed"
    [RebootingProcess]="processes rebooted"
    [ClogInterface]="interfaces clogged"
    [CloggingPair]="pairs clogged"
    [ClusterRecovery]="recoveries"
    [BuggifySection]="sections with injected faults"
)

# Ends with exit code 0, because this machine lacks something.
skip() {
    echo "SKIPPED: the simulation: $1"
    exit 0
}

find_simulator() {
    simulator=${FDBSERVER:-$(command -v fdbserver)}
    [ -x "$simulator" ] || skip "there is no fdbserver on PATH; FDBSERVER names one"
    [[ $("$simulator" --version) == *v7.4.* ]] || skip "$simulator is not of version 7.4"
}

build() {
    export LIBRARY_PATH=${FDB_CLIENT_LIB_PATH:+$FDB_CLIENT_LIB_PATH:}${LIBRARY_PATH:-}
    export LD_LIBRARY_PATH=${FDB_CLIENT_LIB_PATH:+$FDB_CLIENT_LIB_PATH:}${LD_LIBRARY_PATH:-}
    if ! cc -x c - -o "$work/linked" -lfdb_c <<<'int main(void) { return 0; }' >/dev/null 2>&1; then
        skip "there is no libfdb_c: install the package foundationdb-clients, or set FDB_CLIENT_LIB_PATH"
    fi
    (cd "$root" && cargo build --package millrace-simulation --features millrace-simulation/foundationdb) || exit 1
    # A copy, so that all seeds run the same program, whatever is built meanwhile.
    cp "$target/debug/libmillrace_simulation.so" "$work/"
}

# Counts the faults in the trace of a run, whose folder is $1.
count_faults() {
    local event
    for event in "${!faults[@]}"; do
        echo "${faults[$event]}: $(cat "$1"/trace*.json 2>/dev/null | grep -c "\"Type\": \"$event\"")"
    done | sort | paste -sd ';' | sed 's/;/; /g'
}

# Sums the figures of all seeds.
sum() {
    tr ';' '\n' <"$work/reports" | sed 's/^ *//' \
        | awk -F ': ' 'NF == 2 { sums[$1] += $2 } END { for (what in sums) print what ": " sums[what] }' \
        | sort | paste -sd ';' | sed 's/;/; /g'
}

# Runs a seed. Fails after a violation, or when the run did not reach its end.
run_seed() {
    local seed=$1 folder=$work/$1 began=$SECONDS report
    mkdir "$folder"
    sed -e "s|@FOLDER@|$work|; s|@SECONDS@|$seconds|; s|@FAULTS@|$((seconds * 2 / 3))|; s|@PLANT@|$plant|" "$root/storage/simulation/region.toml" \
        >"$folder/region.toml"
    (cd "$folder" && nice -n "${NICE:-15}" "$simulator" -r simulation -f region.toml -s "$seed" -b on --trace-format json >output 2>&1)
    local code=$?
    report=$(grep "^MILLRACE simulated" "$folder/output" | tail -1)
    local last_line=$report
    report="${report#MILLRACE }; $(count_faults "$folder")"
    echo "$report" >>"$work/reports"
    echo "seed $seed: $report; took $((SECONDS - began)) s"
    grep "^MILLRACE VIOLATION" "$folder/output"
    if [ "$last_line" ] && [ "$code" = 0 ] && ! grep -q "^MILLRACE VIOLATION" "$folder/output"; then
        rm -rf "$folder"
        return
    fi
    if [ -z "$last_line" ]; then
        echo "seed $seed did not come to its end (exit code $code):"
        tail -5 "$folder/output"
        cat "$folder"/trace*.json 2>/dev/null | grep '"Severity": "40"' | head -5
    fi
    rm -rf "$folder/simfdb"
    [ -z "${TRACES:-}" ] || cp -r "$folder" "$TRACES/"
    return 1
}

main() {
    find_simulator
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    build
    local seeds failed=0 found=0
    if [ -n "${SEED:-}" ]; then seeds=("$SEED"); else mapfile -t seeds < <(seq "${FIRST:-1}" $((${FIRST:-1} + ${SEEDS:-20} - 1))); fi
    for seed in "${seeds[@]}"; do
        if ! run_seed "$seed"; then
            failed=$((failed + 1))
            if [ "$plant" != none ]; then
                echo "the planted fault $plant was found with seed $seed"
                found=1
                break
            fi
            echo "again: make simulate SEED=$seed"
        fi
    done
    if [ "$plant" != none ]; then
        [ "$found" = 1 ] || { echo "FAILED: the planted fault $plant was not found in ${#seeds[@]} seeds"; exit 1; }
        return
    fi
    echo "${#seeds[@]} seeds, $failed with violations; in all $(sum)"
    [ "$failed" = 0 ]
}

main
exit
