#!/usr/bin/env bash
# Makes rollouts and a tiny reward model, scores by two vLLM servers behind the router, makes the report: recipes/disrm/demo.sh [OUTDIR]
set -euo pipefail
mkdir -p "${1:-demo-rm}"
out=$(cd "${1:-demo-rm}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '\n# %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say 'Rollouts: of these the first 480, which are 40 problems answered 4 times by each of 3 simulated policies'
run python recipes/demo/make_rollouts.py "$out/all_rollouts.jsonl"
head -n 480 "$out/all_rollouts.jsonl" > "$out/rollouts.jsonl"

say 'A reward model made on the spot: a real architecture with random weights, so its rewards mean nothing'
run python recipes/tiny_models.py "$out/models" reward

say 'Two vLLM servers of it and the router in front of them; they take some 20 s to start, and say what they do in' "$out/logs"
run reward-loop score "$out/rollouts.jsonl" -o "$out/scored.parquet" --overwrite --config recipes/disrm/config.yaml \
  reward_model.model.path="$out/models/reward" reward_model.rollout.max_model_len=1024 \
  reward_model.server.cpu_kv_cache_mb=64 reward_model.server.log_dir="$out/logs"

say 'The servers are stopped; what they scored, on one page'
run reward-loop report "$out/scored.parquet" --html "$out/report.html"
printf '\nThe report, for a browser: file://%s\n' "$out/report.html"
