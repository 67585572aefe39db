#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: experts_mpi.sh BUILD SOURCE MPIRUN: experts on four processes, by both
# dispatchers: losses of one process, sampled texts and checkpoints of each other.
. "$(dirname "$(readlink -f "$0")")/ranks.sh"

# train N NAME KEYS...: the recipe on N ranks, saved in NAME.ckpt
train() {
    local n=$1 name=$2
    shift 2
    ranks "$n" "$name" recipe.yaml "checkpoint.save=$name.ckpt" \
        "log.dir=$name.log" "$@"
}

# Losses and gradient norms, nine digits each.
losses() {
    grep -oE '"(loss|grad_norm)": ?[^,]*' "$1.log/metrics.jsonl"
}

cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen2_moe
    num_layers: 2
    hidden_size: 48
    moe_ffn_hidden_size: 24
    num_experts: 8
    moe_router_topk: 2
    moe_aux_loss_coeff: 0.01
    moe_shared_expert_intermediate_size: 40
    num_attention_heads: 4
    num_query_groups: 2
    kv_channels: 12
    vocab_size: 257
    max_position_embeddings: 64
data:
  seq_length: 64
  tokenizer: bytes
  train: [{path: text}]
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 6}
optimizer: {lr: 3e-3}
precision: {params_dtype: fp64}
log: {interval: 1}
eval: {interval: 3, sample: {prompts: ["A rank"], max_new_tokens: 8, top_k: 5}}
YAML

ep=parallel.expert_model_parallel_size
dispatch=parallel.moe_token_dispatcher_type
train 1 one
train 4 gather $ep=4 --profile gather.json
train 4 exchange $ep=4 $dispatch=alltoall --profile exchange.json
train 4 mixed $ep=2 $dispatch=alltoall \
    parallel.tensor_model_parallel_size=2 parallel.sequence_parallel=true
[ "$(losses one | wc -l)" -ge 12 ] || fail "no losses"
for name in gather exchange mixed; do
    paste <(losses one) <(losses "$name") | awk -F'[:\t]' '
        { d = $2 - $4; if (d < 0) d = -d
          if (!(d <= 1e-8 * ($2 < 0 ? -$2 : $2))) exit 1 }' ||
        fail "$name: other losses than one process"
done
"$build/loong-ckpt" diff gather.ckpt exchange.ckpt >diff.out 2>diff.err ||
    fail "the dispatchers do not agree: $(cat diff.out)"
[ "$(grep '^sample' gather.out)" = "$(grep '^sample' exchange.out)" ] ||
    fail "other texts"
grep -q 'experts: room for [0-9]* rows of a layer, more run in rounds; 128 with even routing; .* alltoall' \
    exchange.out || fail "experts are not described"
# The share that is told is what the tables of steps and of communication say.
for name in gather exchange; do
    awk '$1 == "together" { all = $2 }
        /^of which routing .*waiting for rows of other ranks/ { told = $NF + 0 }
        $1 ~ /^(all_gather|reduce_scatter|expert_routes|exchange_rows)$/ &&
            NF == 6 { waited += $5 }
        END { d = told - 100 * waited / all
              exit !(waited > 0 && d < 0.2 && d > -0.2) }' "$name.out" ||
        fail "$name: not the share of waiting for rows of other ranks"
done
