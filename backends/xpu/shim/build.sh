#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes libloong_xpukern.so, the kernel shim of this machine, of the vendor's
# headers and compiler. An error of the compiler says which prototype or name
# the installed release has not.
#   build.sh OUTPUT_DIR
# XPU_INCLUDE  directories of xpu/runtime.h and xpu/xdnn.h, with colons
# XPU_LIB      directories of libxpuapi.so and libxpurt.so, with colons
# XTDK         of the vendor's clang++, which compiles the raw kernels (.xpu)
# BKCL_INCLUDE directory of bkcl.h; without it several ranks need
#              LOONG_BKCL_ENUMS, or comm.device_backend: staged
# CXX, CC      compilers for C++17 (c++) and C11 (cc)
set -eu
out=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
mkdir -p "$out"
: "${XPU_INCLUDE:?where is xpu/xdnn.h?}" "${XPU_LIB:?where is libxpuapi.so?}"
: "${XTDK:?where is clang++ of XTDK?}"

# expand FLAG DIRECTORIES
expand() {
  local dir
  for dir in ${2//:/ }; do printf '%s%s ' "$1" "$dir"; done
}
# Found where they are now, wherever the loader looks later.
rpath=$(expand -Wl,-rpath, "$XPU_LIB")
flags="-std=c++17 -O2 -fPIC -fvisibility=hidden -I$top/include \
  -I$top/kernels -I$top/backends/xpu -I$top/src/base -I$top/src/mesh \
  $(expand -I "$XPU_INCLUDE")"
[ -z "${BKCL_INCLUDE:-}" ] ||
  flags="$flags -DLOONG_SHIM_BKCL $(expand -I "$BKCL_INCLUDE")"

# shellcheck disable=SC2086
${CXX:-c++} $flags -c "$here/xpukern.cc" -o "$out/xpukern.o"
# shellcheck disable=SC2086
${CC:-cc} ${flags#-std=c++17 } -c "$top/kernels/rope/rope.c" -o "$out/rope.o"
objects="$out/xpukern.o $out/rope.o"
for source in "$top"/kernels/*/*.xpu; do
  object=$out/raw_$(basename "$source" .xpu).o
  # shellcheck disable=SC2086
  "$XTDK" --xpu-arch=xpu3 $flags -c "$source" -o "$object"
  objects="$objects $object"
done
# Without an SDK the runtime has a version behind its name alone.
runtime=-lxpurt
for dir in ${XPU_LIB//:/ }; do
  [ ! -e "$dir/libxpurt.so.2" ] || runtime=-l:libxpurt.so.2
done
# shellcheck disable=SC2046,SC2086
${CXX:-c++} -shared -o "$out/libloong_xpukern.so" $objects \
  $(expand -L "$XPU_LIB") $rpath -lxpuapi $runtime
echo "$out/libloong_xpukern.so: put its directory first in LOONG_XPU_PATH, or"
echo "beside libxpurt.so.2; loongrun --doctor tells what it has"
