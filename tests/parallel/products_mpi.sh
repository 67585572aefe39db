#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: products_mpi.sh BUILD SOURCE MPIRUN: products rank by rank on processes:
# the checkpoint of the products as they are, the steps that --explain tells,
# and what --profile says of the shifts.
. "$(dirname "$(readlink -f "$0")")/ranks.sh"

# train N NAME KEYS...: the recipe on N ranks, saved in NAME.ckpt
train() {
    local n=$1 name=$2
    shift 2
    ranks "$n" "$name" recipe.yaml "checkpoint.save=$name.ckpt" "$@"
}

# Below AVX-512 the bits of oneDNN's products depend on how many rows there are.
dtype=fp64
! grep -qw avx512vl /proc/cpuinfo || dtype=fp32

cat >recipe.yaml <<YAML
model:
  foundation:
    family: qwen3
    num_layers: 2
    hidden_size: 48
    ffn_hidden_size: 80
    num_attention_heads: 6
    num_query_groups: 3
    kv_channels: 8
    vocab_size: 257
    max_position_embeddings: 64
data:
  seq_length: 60
  tokenizer: bytes
  train: [{path: text}]
train: {micro_batch_size: 1, global_batch_size: 2, train_iters: 4}
optimizer: {lr: 3e-3}
precision: {params_dtype: $dtype}
parallel: {sequence_parallel: true}
comm: {overlap_work: 0}
YAML

tp=parallel.tensor_model_parallel_size
rows=parallel.tp_comm_overlap=true
for n in 2 3; do
    train $n all$n $tp=$n
    train $n rows$n $tp=$n $rows --profile rows$n.json
    "$build/loong-ckpt" diff all$n.ckpt rows$n.ckpt >diff.out 2>diff.err ||
        fail "$n ranks: other parameters: $(cat diff.out)"
done

# Of 2 layers: a gather and a scatter of attention and feed-forward, each way
# but for the gradients of inputs, 2 shifts each on 3 ranks.
"$build/loongrun" recipe.yaml --explain --ranks 3 $tp=3 $rows >explain.out \
    2>explain.err || fail "exit $?: --explain"
steps=$(awk '/^program forward/ { f = 1 } /^program backward/ { f = 0 }
    f && $4 == "layers.0.mlp" { printf "%s ", $2 }' explain.out)
[ "$steps" = "ring_shift ring_shift linear linear linear swiglu linear \
ring_shift linear ring_shift linear sum_heads " ] ||
    fail "steps of the feed-forward: $steps"
grep -qE '^ring_shift +192 ' rows3.out rows3.err ||
    fail "no 192 shifts in the table of communication"
grep -hE '^ring_shift ' rows3.out rows3.err | grep -qvE ' 0\.0%$' ||
    fail "nothing went on beside a shift"
