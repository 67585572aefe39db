#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: training.sh BUILD SOURCE MPIRUN RANKS: processes with a simulated XPU
# each, as a person starts them, whose collectives are BKCL's: the losses of the
# processor, with shards of optimizer and gradients and, of four ranks, two
# pipeline stages.
set -u
build=$1
source=$2
mpirun=$3
ranks=$4
. "$source/tests/in_place.sh"

# train DIR ARGUMENTS...
train() {
  local dir=$1 got=0
  shift
  timeout -k 5 60 "$mpirun" --oversubscribe -n "$ranks" "$build/loongrun" \
    recipe.yaml "$@" log.dir="$dir" >out 2>err || got=$?
  [ "$got" = 0 ] || fail "$*: exit $got"
}

losses() {
  sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"
}

# alike A B: three losses, equal to a relative 64 x 2^-24
alike() {
  paste <(losses "$1") <(losses "$2") | awk '
    { d = $1 - $2; if (d < 0) d = -d
      if (NF != 2 || d > 64 / 16777216 * $1) bad = 1 }
    END { exit bad || NR != 3 }' || fail "losses of $1 and $2"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
  --suffixes .md --output-prefix text "$source/docs/devices" >/dev/null
cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 2
    hidden_size: 16
    ffn_hidden_size: 24
    num_attention_heads: 2
    vocab_size: 257
    max_position_embeddings: 16
    activation: swiglu
    untie_embeddings_and_output_weights: false
precision: {params_dtype: fp32}
data: {seq_length: 16, train: [{path: text}]}
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 3}
optimizer: {lr: 1e-3}
parallel: {data_parallel_sharding: optim_grads, bucket_bytes: 4096}
log: {interval: 1}
comm: {timeout: 60s}
YAML
export SIM_XPU_COUNT=$ranks
train cpu device=cpu
train xpu device=xpu
alike cpu xpu
if [ "$ranks" = 4 ]; then
  train cpu2 device=cpu parallel.pipeline_model_parallel_size=2
  train xpu2 device=xpu parallel.pipeline_model_parallel_size=2
  alike cpu2 xpu2
fi
# The loss calls other ranks, which the processor cannot do for a device.
if [ "$ranks" = 2 ]; then
  SIM_XPU_LACKS=cross_entropy timeout -k 5 60 "$mpirun" --oversubscribe -n 2 \
    "$build/loongrun" recipe.yaml device=xpu --check \
    'train.host_ops=[cross_entropy]' \
    parallel.tensor_model_parallel_size=2 >out 2>err
  grep -q 'cross_entropy_host: the vocabulary is in parts' err ||
    fail 'a vocabulary in parts on the host'
fi
# Without BKCL it is told what does without.
if [ "$ranks" = 2 ]; then
  mkdir nobkcl
  cp "$build"/xpusim/* nobkcl && rm nobkcl/libbkcl.so
  LOONG_XPU_PATH=$PWD/nobkcl timeout -k 5 60 "$mpirun" --oversubscribe -n 2 \
    "$build/loongrun" recipe.yaml device=xpu >out 2>err
  grep -q 'comm.device_backend: staged does without it' err || fail 'no BKCL'
  LOONG_XPU_PATH=$PWD/nobkcl train staged device=xpu \
    comm.device_backend=staged
  alike cpu staged
fi
