#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: earlier_run.sh BUILD SOURCE [MPIRUN]: a run that commit 3d3df83 saved
# (tests/fixtures/earlier_run: experts, tied ends, shared out to two ranks) goes
# on in layouts of now with the losses that it had there; where a family has
# another default by now it is told which key goes on as before.
set -eu
build=$1
source=$2
mpirun=${3:-}
. "$source/tests/in_place.sh"
export OMP_NUM_THREADS=1
for ((i = 1; i <= 500; i++)); do
    echo "line $i of $((i * 7919 % 1000))"
done >lines.txt
"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --output-prefix data lines.txt >/dev/null
cat >recipe.yaml <<'YAML'
version: 1
name: earlier
device: cpu
model:
  foundation: {family: qwen3_moe, num_layers: 1, hidden_size: 4,
    num_attention_heads: 2, num_query_groups: 1, kv_channels: 2,
    vocab_size: 257, max_position_embeddings: 16, num_experts: 2,
    moe_ffn_hidden_size: 4, moe_router_topk: 1, moe_aux_loss_coeff: 0.01,
    untie_embeddings_and_output_weights: false}
precision: {params_dtype: fp32}
data: {seq_length: 16, train: [{path: data}]}
train: {global_batch_size: 4, train_iters: 4}
optimizer: {lr: 1e-2, lr_warmup_iters: 1}
log: {interval: 1}
YAML
load=checkpoint.load=$source/tests/fixtures/earlier_run/step_00000002

# go_on RANKS [KEY=VALUE...]: steps 3 and 4 have these losses and norms.
go_on() {
    local ranks=$1 start=()
    shift
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    rm -rf log
    "${start[@]}" "$build/loongrun" recipe.yaml "$load" log.dir=log "$@" >out \
        2>&1 || fail "on $ranks ranks: $*"
    grep -oE '"(loss|grad_norm)":[^,}]*' log/metrics.jsonl | sed 's/.*://' |
        paste -d ' ' - - - - | awk '
        function off(a, b) { d = a - b; return (d < 0 ? -d : d) > 1e-6 * b }
        NF != 4 || off($1, 5.50350366) || off($2, 0.804449391) ||
            off($3, 5.49106812) || off($4, 0.835317301) { exit 1 }
        END { if (NR != 1) exit 1 }' || fail "other losses: $*"
}
go_on 1
[ -z "$mpirun" ] || {
    go_on 2 parallel.data_parallel_sharding=optim_grads_params
    go_on 2 parallel.expert_model_parallel_size=2
}
key=model.foundation.untie_embeddings_and_output_weights
! "$build/loongrun" recipe.yaml "$load" "~$key" >out 2>&1 ||
    fail "another model goes on"
grep -qF "$key: false in the checkpoint, now true; set it to false to go on" \
    out || fail "what goes on as before is not told"
