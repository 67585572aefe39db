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
echo 'the doctor knows'
