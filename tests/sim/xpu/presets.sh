#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: presets.sh BUILD SOURCE [NAME]: a training step of every preset, or of
# those whose name has NAME, on a card with the shim of real cards: no op of it
# is left to the host. What is lacking is printed.
set -u
build=$1
source=$2
name=${3:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export LOONG_XPU_PATH=$build/xpusim_card:$build/xpusim SIM_XPU_COUNT=1
bad=0 count=0

for file in "$source"/configs/models/*/*"$name"*.yaml; do
  model=${file#"$source"/configs/models/}
  count=$((count + 1))
  cat >recipe.yaml <<YAML
model: ${model%.yaml}
device: xpu
data: {seq_length: 64}
train: {micro_batch_size: 1, global_batch_size: 1, train_iters: 1}
optimizer: {lr: 1e-3}
YAML
  if ! timeout 120 "$build/loongrun" recipe.yaml --explain >out 2>err; then
    echo "$model: $(tail -n 3 err | head -n 2 | tr '\n' ' ')"
    bad=1
  fi
done
echo "$count presets"
exit $bad
