#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: too_large.sh BUILD SOURCE MPIRUN: models that no machine here holds.
# --dry-run answers within 3 GiB of addresses; a start is refused, with the
# same figures, before anything is allocated.
set -u
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1
failed=0

fail() {
    echo "FAILED: $1"
    tail -n 20 out err
    failed=1
}

# limited CODE COMMAND...
limited() {
    local wanted=$1 code=0
    shift
    (ulimit -v $((3 << 20)) && exec timeout -k 5 90 "$@") >out 2>err || code=$?
    [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
}

has() { grep -qE -- "$1" out err || fail "no \"$1\""; }

recipe() { # FILE MODEL_LINES
    cat >"$1" <<YAML
$2
data: {seq_length: 4096, train: [{path: nowhere}]}
train: {micro_batch_size: 1, global_batch_size: 1000000, train_iters: 2}
optimizer: {lr: 1e-3}
device: cpu
comm: {backend: self}
precision: {params_dtype: bf16}
YAML
}

recipe 405b.yaml \
    "defaults: [$source/configs/models/llama3.1/llama3.1_405b.yaml@model.foundation]"
recipe trillion.yaml 'model: {foundation: {family: llama, num_layers: 128,
  hidden_size: 24576, ffn_hidden_size: 98304, num_attention_heads: 192,
  num_query_groups: 16, vocab_size: 200000, max_position_embeddings: 4096}}'

for name in 405b:405853388800 trillion:1105; do
    file=${name%:*}.yaml
    limited 0 "$build/loongrun" --dry-run --elsewhere "$file"
    has "^parameters: ${name#*:}"
    has '^  optimizer .*TiB$'
    ! grep -q 'this machine has' out || fail "this machine is judged"
    has '^predicted step: [0-9.]+ ms'
    has 'launches timed in .* on fewer rows'
    figure=$(sed -n 's/^  together *\(.*\)/needs \1/p' out)
    limited 1 "$build/loongrun" "$file"
    has "too little memory: $figure per rank, this machine has [0-9.]+ .iB"
    has 'exit 1: run-time failure'
done

# sequences whose very positions are gigabytes
limited 0 "$build/loongrun" --dry-run --elsewhere trillion.yaml data.seq_length=500M \
    model.foundation.max_position_embeddings=500000000
has '^predicted step: '

# two ranks share a machine, and what it has
limited 1 "$mpirun" --oversubscribe -n 2 "$build/loongrun" 405b.yaml \
    comm.backend=auto
has 'needs [0-9.]+ TiB per rank \([0-9.]+ TiB for the 2 ranks here\), this'
[ "$(grep -c 'too little memory' err)" = 1 ] || fail "told by every rank"
exit $failed
