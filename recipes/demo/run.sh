#!/usr/bin/env bash
# Makes rollouts, scores them and makes the report: recipes/demo/run.sh [OUTDIR]
set -euo pipefail
mkdir -p "${1:-demo}"
out=$(cd "${1:-demo}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

run() { printf '\n$ %s\n' "$*"; "$@"; }

run python recipes/demo/make_rollouts.py "$out/rollouts.jsonl"
run reward-loop score "$out/rollouts.jsonl" -o "$out/scored.parquet" --overwrite --config recipes/demo/config.yaml
run reward-loop report "$out/scored.parquet" --html "$out/report.html"
printf '\nThe report, for a browser: file://%s\n' "$out/report.html"
