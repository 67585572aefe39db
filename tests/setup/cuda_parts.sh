#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: cuda_parts.sh BUILD SOURCE NVCC: configured with a toolkit of which one
# part after the other is hidden: with LOONG_CUDA=AUTO the backend is left out
# and the reason told, with ON that is an error that names the package.
set -u
build=$1
source=$2
nvcc=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset CUDAHOSTCXX CUDA_PATH CUDAToolkit_ROOT
export CUDACXX=$place/cuda/bin/nvcc

fail() {
  printf 'FAILED: %s\n' "$1"
  tail -n 20 "$place/said"
  exit 1
}

# The toolkit in links, but for nvcc, which looks for the rest beside itself; a
# second one of the system's is out of sight.
from=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
cp -rsL "$from" "$place/cuda" || exit 1
cp --remove-destination "$from/bin/nvcc" "$place/cuda/bin/" || exit 1
others=$(find -H /usr/lib /usr/lib64 /usr/local/lib /usr/local/lib64 \
  -name libcudart_static.a -printf '%h;' 2> "$place/said")
rm -rf "$build"

# configure MODE [OPTION...]
configure() {
  local mode=$1
  shift
  cmake -S "$source" -B "$build" -G Ninja -DLOONG_CUDA="$mode" \
    -DCMAKE_IGNORE_PATH="$others" "$@" > "$place/said" 2>&1
}
# says TEXT: whatever the width of its lines
says() {
  tr -s ' \n' ' ' < "$place/said" | grep -qF -- "$1" || fail "no word of: $1"
}
# without FILE PACKAGE: what cmake found before is no reason to go on.
without() {
  local file
  find "$place/cuda" -path "*/$1" > "$place/hidden"
  [ -s "$place/hidden" ] || fail "the toolkit has no $1"
  while read -r file; do mv "$file" "$file.hidden"; done < "$place/hidden"
  configure AUTO || fail "AUTO without $1"
  says "CUDA: skipped, no $1 in"
  says "($2-13-0)"
  ! configure ON || fail "ON without $1"
  says "LOONG_CUDA=ON: no $1 in"
  says "($2-13-0)"
  while read -r file; do mv "$file.hidden" "$file"; done < "$place/hidden"
}

without libcudart_static.a cuda-cudart-dev
without cuda_bf16.h cuda-cudart-dev
without cublasLt.h libcublas-dev
without nvtx3/nvToolsExt.h cuda-nvtx
configure ON || fail "a whole toolkit"
says "CUDA: 1"

# And nvcc itself.
rm -rf "$build"
mv "$CUDACXX" "$CUDACXX.hidden"
! configure ON || fail "ON without nvcc"
says "LOONG_CUDA=ON: no nvcc that compiles"
says "(cuda-nvcc-13-0"
