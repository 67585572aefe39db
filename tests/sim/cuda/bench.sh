#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench.sh BUILD SOURCE: loong-bench on the simulated device, every op of
# tests/gpu/kernels.txt and steps of its recipes, small; and loongrun --dry-run,
# which tests/gpu/step.py reads.
set -u
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1

fail() {
  printf 'FAILED: %s\n' "$1"
  tail -n 20 out
  exit 1
}

small() { # OP: a shape for it
  case $1 in
  linear*) echo 24,16,8 ;;
  attention*) echo 1,24,2,1,64,64 ;;
  cross_entropy) echo 12,40,16 ;;
  grouped_linear*) echo 3,4,16,8 ;;
  *permute) echo 10,2,16 ;;
  rope) echo 6,2,16 ;;
  topk_router*) echo 6,16,2 ;;
  embedding*) echo 6,10,16 ;;
  head_linear*) echo 6,2,16,8 ;;
  adamw*) echo 300 ;;
  *) echo 6,48 ;;
  esac
}
count=0
while read -r op _; do
  case $op in '' | \#*) continue ;; esac
  "$build/loong_bench_cudasim" op --device cuda --op "$op" --seconds 0 \
    --shape "$(small "$op")" --json > out 2>&1 || fail "op $op"
  # One kernel, which is named, timed and moves bytes or multiplies.
  grep -qE '^\{"op":"[a-z0-9_]+","kernel":"[a-z_]+cuda",.*"device":"cuda",' out ||
    fail "what it says of $op"
  ! grep -q '"gflops":0,"gbytes_per_s":0,' out || fail "$op: it does nothing"
  grep -q '"gbytes_per_s":[0-9.e+-]*[1-9]' out || fail "$op: it moves nothing"
  grep -qE '"copy_share":[0-9.e+-]*[1-9]' out || fail "$op: no share of a copy"
  count=$((count + 1))
done < "$source/tests/gpu/kernels.txt"
[ $count -ge 40 ] || fail "only $count ops in kernels.txt"

for recipe in llama gpt2_124m; do
  set -- model.foundation.num_layers=1 model.foundation.hidden_size=32 \
    model.foundation.ffn_hidden_size=48 model.foundation.vocab_size=64 \
    model.foundation.num_attention_heads=2 \
    model.foundation.num_query_groups=2 model.foundation.kv_channels=16 \
    data.seq_length=16 train.micro_batch_size=1 train.global_batch_size=2
  "$build/loong_bench_cudasim" step --json --floor-seconds 0 --steps 2 \
    "$source/tests/gpu/recipes/$recipe.yaml" device=cuda "$@" > out 2>&1 ||
    fail "steps of $recipe"
  grep -q '^{"bench":"step",.*"tokens_per_second":[1-9]' out ||
    fail "what it says of steps of $recipe"
  "$build/loongrun_cudasim" --dry-run --elsewhere "$source/tests/gpu/recipes/$recipe.yaml" \
    device=cuda 'data.train=[{path: none}]' "$@" > out 2>&1 ||
    fail "--dry-run of $recipe"
  grep -qE '^ *on the device +[0-9.]+ [KMG]iB$' out || fail "memory of $recipe"
done
