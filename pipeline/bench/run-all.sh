#!/bin/sh
# Measures every figure and collects what was printed, and the JSON, in a folder (default: target/figures).
#
# It means nothing on a machine that does other work meanwhile.
# `COLLECTOR`, the path of a Collector (README.md says how one is built), adds the traces beside it.
# `PAIRS` is the number of pairs.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-target/figures}
mkdir -p "$out"
cargo build --profile dist -p profbridge -p profbridge-bench
bench=target/dist/profbridge-bench

# A figure that is not reached is printed as such; a measurement that fails ends the run.
measure() {
    name=$1
    shift
    echo "== $name: $*"
    "$@" > "$out/$name.txt" 2>&1 || { cat "$out/$name.txt"; exit 1; }
    cat "$out/$name.txt"
}

measure parts $bench parts --pairs "${PAIRS:-12}" --json "$out/parts.json"
measure process-avg $bench process --pairs "${PAIRS:-8}" --json "$out/process-avg.json"
measure process-avg-60s $bench process --window 60s --pairs "${PAIRS:-8}" --json "$out/process-avg-60s.json"
measure process-ruby-deep $bench process --shape ruby-deep --pairs "${PAIRS:-8}" --json "$out/process-ruby-deep.json"
if [ -n "${COLLECTOR:-}" ]; then
    measure traces $bench traces --collector "$COLLECTOR" --pairs "${PAIRS:-8}" --json "$out/traces.json"
    measure traces-gzip $bench traces --collector "$COLLECTOR" --compression gzip --pairs "${PAIRS:-8}" --json "$out/traces-gzip.json"
    for to in sentry-otlp sentry-streamed; do
        measure traces-$to $bench traces --to $to --collector "$COLLECTOR" --pairs "${PAIRS:-8}" --json "$out/traces-$to.json"
    done
fi
for to in sentry-otlp sentry-streamed; do
    measure distant-$to $bench traces --to $to --delay 100 --json "$out/distant-$to.json"
    measure memory-bounds-$to $bench memory-bounds --spans $to --json "$out/memory-bounds-$to.json"
done
measure memory-bounds $bench memory-bounds --json "$out/memory-bounds.json"
measure memory-bounds-spans $bench memory-bounds --spans --json "$out/memory-bounds-spans.json"
measure sampler $bench sampler --turns "${PAIRS:-12}" --json "$out/sampler.json"
measure gateway cargo run --profile dist -p profbridge-processor-chunk --example gateway
measure merge cargo bench --profile dist -p profbridge-processor-dedup --bench merge -- only-the-table
