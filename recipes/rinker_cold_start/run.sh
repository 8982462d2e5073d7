#!/usr/bin/env bash
# Trains a reward model on preferences and a policy by its rewards: recipes/rinker_cold_start/run.sh RUN [served|local]
set -euo pipefail
run=$(mkdir -p "${1:?the directory of the run}" && cd "$1" && pwd)
rewards=${2:-served}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '\n# %s\n' "$*"; }
do_() { printf '$ %s\n' "$*"; "$@"; }
rinker() { python -m reward_loop.cli.rinker.main "$@"; }

say 'Preferences about letters, a reward model of random weights, and a policy of random weights'
do_ python -m recipes.rinker_rm_basic.make "$run/rm" --chat
do_ python -m recipes.rinker_cold_start.make "$run"

say 'The reward model learns from the preferences'
do_ rinker train rm -c recipes/rinker_rm_basic/config.yaml log_path="$run/rm"
[[ -d $run/reward_model ]] || do_ rinker export "$run/rm" -o "$run/reward_model"

say "The policy learns from the reward model alone ($rewards)"
do_ rinker train rl -c recipes/rinker_cold_start/config.yaml -c "recipes/rinker_cold_start/$rewards.yaml" log_path="$run"
