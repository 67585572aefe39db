#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: abort.sh BUILD SOURCE MPIRUN: four simulated devices, data and tensor
# parallel, their programs replayed as graphs that hold calls of both groups. A
# rank is killed while it launches one: every other one says so and ends with
# exit code 4 within 30 s, though graphs are under way on its device.
set -u
build=$1
source=$2
mpirun=$3
. "$source/tests/in_place.sh"
export CUDASIM_DEVICES=4

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs/devices" >/dev/null
cat >recipe.yaml <<'YAML'
device: cuda
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 16,
    ffn_hidden_size: 24, num_attention_heads: 2, vocab_size: 257,
    make_vocab_size_divisible_by: 2, max_position_embeddings: 8}
precision: {params_dtype: fp32}
data: {seq_length: 8, train: [{path: text}]}
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 6,
  cuda_graph_impl: local}
optimizer: {lr: 1e-3}
parallel: {tensor_model_parallel_size: 2,
  data_parallel_sharding: optim_grads, bucket_bytes: 4096}
log: {interval: 9}
comm: {timeout: 60s}
YAML
# A rank that has ended waits for the others: its mpirun would end them.
cat >rank.sh <<'SH'
[ "$OMPI_COMM_WORLD_RANK" = 3 ] || unset CUDASIM_KILL_AT_GRAPH
"$@" 2>"err.$OMPI_COMM_WORLD_RANK"
code=$?
echo $code >"code.$OMPI_COMM_WORLD_RANK"
for _ in $(seq 400); do
    [ "$(cat code.? | wc -l)" != "$RANKS" ] || break
    sleep 0.1
done
exit $code
SH

began=$SECONDS
CUDASIM_KILL_AT_GRAPH=10 RANKS=4 timeout -k 5 100 "$mpirun" --oversubscribe \
    -n 4 bash rank.sh "$build/loongrun_cudasim" recipe.yaml >out 2>err
! grep '^cudasim:' err.? || fail 'what the device says'
for rank in 0 1 2; do
    [ "$(cat code.$rank)" = 4 ] || fail "rank $rank: exit $(cat code.$rank)"
    grep -q 'rank 3' err.$rank || fail "rank $rank does not name rank 3"
done
[ $((SECONDS - began)) -le 30 ] || fail "$((SECONDS - began)) s"
