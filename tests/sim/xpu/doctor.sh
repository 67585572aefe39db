#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What loongrun --doctor says of a machine with XPUs, of one without kernels, of
# one without anything, and of one whose CUDA is Kunlun's.
#   doctor.sh BUILD_DIR
set -u
cd "$1" || exit 2
sim=$PWD/xpusim
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# says TEXT: the doctor does.
says() {
  grep -qF -- "$1" "$room/out" || {
    echo "the doctor does not say: $1"
    cat "$room/out"
    exit 1
  }
}

LOONG_XPU_PATH=$sim ./loongrun --doctor >"$room/out" || exit 1
says 'device           xpu: Kunlun XPU3, model 300, 96.0 GiB of memory'
says "xpu: library: $sim/libxpu_blas.so"
says 'xpu: kernel shim: simulator'
says "xpu: library: $sim/libbkcl.so"
says 'xpu: missing: nothing'
says 'xpu: multiplies: fp32, bf16 by matrices'
says "xpu: environment: LOONG_XPU_PATH=$sim"

# The runtime alone: what is missing, and what that costs.
mkdir "$room/bare"
cp "$sim/libxpurt.so.2" "$room/bare"
LOONG_XPU_PATH=$room/bare ./loongrun --doctor >"$room/out" || exit 1
says 'missing: libxpuml.so.1 (free memory is counted here); libxpu_blas.so'
says 'no kernels: '
says 'libbkcl.so (several ranks: comm.device_backend: staged)'
says 'xpu: multiplies: nothing'

# Files that are there and of no use: one is empty, one is cut short.
: >"$room/bare/libxpuml.so.1"
head -c 3000 "$sim/libbkcl.so" >"$room/bare/libbkcl.so"
LOONG_XPU_PATH=$room/bare ./loongrun --doctor >"$room/out" || exit 1
says 'libxpuml.so.1: file too short (free memory is counted here)'
says "$room/bare/libbkcl.so: the file is cut short: it has 3000 bytes"
head -c 2000 "$sim/libxpurt.so.2" >"$room/bare/libxpurt.so.2"
LOONG_XPU_PATH=$room/bare ./loongrun --doctor >"$room/out" || exit 1
says "xpu: 0 found, $room/bare/libxpurt.so.2: the file is cut short"

# Another file of that name, or none at all.
echo no library >"$room/bare/libxpurt.so.2"
LOONG_XPU_PATH=$room/bare ./loongrun --doctor >"$room/out" || exit 1
says 'xpu: 0 found, '
says 'libxpurt.so.2: '
LOONG_XPU_PATH=$room ./loongrun --doctor >"$room/out" || exit 1
says 'No such file'

# The shim apart from what it needs, as build.sh leaves it: its kernels are
# found all the same, and nothing is loaded before the driver's variable is set.
mkdir "$room/shim" "$room/rest"
cp "$sim/libloong_xpukern.so" "$room/shim"
cp "$sim"/libxpu* "$room/rest"
cat >"$room/recipe.yaml" <<'YAML'
model: {foundation: {family: qwen3, num_layers: 1, hidden_size: 8,
  ffn_hidden_size: 8, num_attention_heads: 1, vocab_size: 8,
  max_position_embeddings: 8}}
device: xpu
YAML
export SIM_XPU_LAUNCH=1
LOONG_XPU_PATH=$room/shim:$room/rest ./loongrun --doctor >"$room/out" 2>&1 ||
  exit 1
says "xpu: library: $room/shim/libloong_xpukern.so"
LOONG_XPU_PATH=$room/shim:$room/rest ./loongrun "$room/recipe.yaml" --explain \
  >"$room/out" 2>&1
says 'attention_xpu'

# Kunlun's driver under NVIDIA's name.
mkdir "$room/driver"
cp "$sim/libxpurt.so.2" "$room/driver/libxpucuda.so.515.58.kunlun"
ln -s libxpucuda.so.515.58.kunlun "$room/driver/libcuda.so.1"
LD_LIBRARY_PATH=$room/driver ./loongrun_cudasim --doctor >"$room/out" ||
  exit 1
says "is libcuda.so.1 here, is Kunlun's: its devices are of kind xpu"

# A driver of NVIDIA's name that is cut short, in a directory of the loader's.
mkdir "$room/half"
head -c 3000 "$sim/libxpurt.so.2" >"$room/half/libcuda.so.1"
LD_LIBRARY_PATH=$room/half ./loongrun_cudasim --doctor >"$room/out" || exit 1
says "cuda: 0 found, $room/half/libcuda.so.1: the file is cut short"

# Plans of several kinds: without a shim, and of components that stand on all of
# them or on one each. A card that predict.device names has its own memory.
cat >"$room/plan.yaml" <<'YAML'
model:
  image_encoder: {family: clip_vision_model, num_layers: 2, hidden_size: 64,
    num_attention_heads: 2, image_size: 28, patch_size: 14, feature_layer: -2}
  image_projector: {family: mlp_projector}
  foundation: {family: llama, num_layers: 2, hidden_size: 128,
    ffn_hidden_size: 256, num_attention_heads: 2, vocab_size: 3000000,
    max_position_embeddings: 64}
data: {seq_length: 64, max_images: 1}
train: {micro_batch_size: 1, global_batch_size: 6, train_iters: 1}
precision: {params_dtype: bf16}
optimizer: {lr: 1e-3}
YAML
e=model.image_encoder p=model.image_projector f=model.foundation

# plan CODE LOONGRUN KEYS...
plan() {
  local wanted=$1 code=0
  shift
  "$1" "$room/plan.yaml" --dry-run --elsewhere --ranks 3 "${@:2}" \
    >"$room/out" 2>&1 || code=$?
  [ $code = "$wanted" ] || says "exit $wanted"
}
mixed='devices=[cuda:0, xpu:1-2]'
plan 66 ./loongrun "$mixed"
says 'planned for device xpu: this build has no kernels of it'
export LOONG_XPU_PATH=$sim
plan 0 ./loongrun "$mixed" $e.ranks=0 $p.ranks=0 $f.ranks=1-2
says 'rank 0 (cuda): forward'
says 'rank 1 (xpu): forward'
plan 0 ./loongrun "$mixed" $f.vocab_size=45000000
says 'ranks that hold the same layers as rank 0 have devices of several kinds'
says 'GiB  of 96.00 GiB, xpu:'
lacks='memory: rank 1 needs [0-9.]* GiB, all memory of xpu:p800_press is 96.00 GiB'
# counts REGEX N: lines of it.
counts() {
  [ "$(grep -c -- "$1" "$room/out")" = "$2" ] || says "$2 lines of $1"
}
counts "^perhaps too little $lacks.*, a card that nothing names; with predict" 1
counts "perhaps too little $lacks" 1
plan 1 ./loongrun "$mixed" $f.vocab_size=45000000 predict.device=p800_press
counts "^too little $lacks" 2
counts 'perhaps too little' 0
# What is named of one kind judges all; a processor beside it changes nothing.
plan 1 ./loongrun "$mixed" $f.vocab_size=45000000 predict.device=h200
plan 1 ./loongrun 'devices=[cpu:0, xpu:1-2]' $f.vocab_size=45000000 \
  predict.device=p800_press
counts "^too little $lacks" 2
plan 0 ./loongrun 'devices=[cpu:0, xpu:1-2]' $f.vocab_size=45000000
counts "^perhaps too little $lacks" 1
plan 0 ./loongrun device=xpu $f.vocab_size=45000000
counts '^perhaps too little memory: rank [0-2] needs' 1
plan 0 ./loongrun "$mixed"
counts 'too little' 0
# A card is named where there is none: told before anything else.
plan 2 ./loongrun device=cpu predict.device=h100
says 'this run is on the processor'
! grep -q 'memory of this rank' "$room/out" || says 'no table before it'
plan 0 ./loongrun_cudasim device=cuda predict.device=h100
plan 1 ./loongrun_cudasim device=cuda predict.device=h100 $f.vocab_size=45000000
says 'GiB (all memory of cuda:h100)'
echo 'the doctor knows'
