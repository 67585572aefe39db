#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that wants an NVIDIA GPU, in one command: builds, tests, measures,
# and writes one table.
#
#   tests/gpu/run.sh [--out DIR] [--build DIR] [--libraries FILE]
#                    [--only STEP,...]
#
#   --out        log files, report.json and report.md (default: gpu-report)
#   --build      build folder (default: build-gpu)
#   --libraries  archive of tests/gpu/pack.sh, for a machine without the host
#                libraries; nothing is ever downloaded
#   --only       of build, ops, sanitizer, bench, peers; in this order (build is
#                cheap the second time)
#
# A step that fails does not hold up the next. Exit code: 0 all passed, 1 a
# step failed, 2 wrong use or no GPU. The machine's clocks are left alone.
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
out=gpu-report build=build-gpu libraries=""
steps=build,ops,sanitizer,bench,peers
while [ $# -gt 0 ]; do
  test $# -ge 2 || { echo "run.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
  --out) out=$2 ;;
  --build) build=$2 ;;
  --libraries) libraries=$2 ;;
  --only) steps=$2 ;;
  *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
for step in ${steps//,/ }; do
  case $step in
  build | ops | sanitizer | bench | peers) ;;
  *) echo "run.sh: --only $step: must be of build, ops, sanitizer, bench," \
    "peers" >&2; exit 2 ;;
  esac
done
mkdir -p "$out" "$build" || exit 2
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)

need() { command -v "$1" >/dev/null ||
  { echo "run.sh: $1 was not found: $2" >&2; exit 2; }; }
need nvidia-smi "is there an NVIDIA driver?"
need nvcc "put the CUDA toolkit on PATH"
need cmake "version 3.25 or newer"
device=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total \
  --format=csv,noheader | head -1)
test -n "$device" || { echo "run.sh: nvidia-smi shows no GPU" >&2; exit 2; }
architecture=$(echo "$device" | awk -F', ' '{gsub(/\./, "", $2); print $2}')
test "$architecture" != 90 || architecture=90a
echo "$device, compiling for $architecture"

if [ -n "$libraries" ]; then
  packed=$build/libraries
  mkdir -p "$packed" && tar -C "$packed" -xJf "$libraries" || exit 2
  export PATH=$packed/bin:$PATH
  export C_INCLUDE_PATH=$packed/include CPLUS_INCLUDE_PATH=$packed/include
  export LIBRARY_PATH=$packed/lib
  export LD_LIBRARY_PATH=$packed/lib:${LD_LIBRARY_PATH:-}
  export PKG_CONFIG_PATH=$packed/lib/pkgconfig
fi

# step NAME COMMAND...: its log, exit code and seconds, in place of an earlier
# run's.
touch "$out/steps.tsv"
failed=0
step() {
  local name=$1 begin code
  shift
  case ,$steps, in *,$name,*) ;; *) return 0 ;; esac
  begin=$(date +%s)
  "$@" > "$out/$name.log" 2>&1
  code=$?
  sed -i "/^$name\t/d" "$out/steps.tsv"
  printf '%s\t%d\t%d\n' "$name" $code $(($(date +%s) - begin)) \
    >> "$out/steps.tsv"
  echo "$name: exit code $code, $(($(date +%s) - begin)) s"
  test $code = 0 || { failed=1; tail -15 "$out/$name.log"; }
  return $code
}

build() {
  cmake -S "$source" -B "$build" -G Ninja -DLOONG_CUDA=ON \
    -DLOONG_CUDA_ARCHITECTURES=$architecture -DLOONG_TEST_GPU=ON &&
    cmake --build "$build" --target gpu
}

ops() { ctest --test-dir "$build" -L gpu --output-on-failure; }

# Every op test again, its accesses and its barriers watched.
sanitizer() {
  local code=0
  command -v compute-sanitizer || { echo "compute-sanitizer was not found"
    return 1; }
  for tool in memcheck racecheck; do
    for test in "$build"/test_gpu_op_*; do
      echo "== $tool $(basename "$test")"
      (cd "$build" && timeout 300 compute-sanitizer --tool $tool \
        --error-exitcode 3 "$test") || code=1
    done
  done
  return $code
}

# The kernels at the sizes of an 8B Llama's training, larger than the caches.
bench() {
  local code=0
  while read -r op shape; do
    "$build/loong-bench" op --device cuda --op "$op" --shape "$shape" \
      --seconds 1 --json || code=1
  done <<'SHAPES'
linear 16384,14336,4096
linear_dx 16384,14336,4096
linear_dw 16384,14336,4096
attention 4,8192,32,8,128
attention_grad 4,8192,32,8,128
cross_entropy 8192,128256,4096
grouped_linear 64,512,4096,2048
grouped_linear_dw 64,512,4096,2048
permute 16384,8,4096
unpermute 16384,8,4096
swiglu 16384,28672
swiglu_grad 16384,28672
gelu 16384,16384
gelu_grad 16384,16384
add 65536,4096
sum_rows 65536,4096
rmsnorm 65536,4096
add_rmsnorm 65536,4096
rmsnorm_grad 65536,4096
layernorm 65536,4096
add_layernorm 65536,4096
layernorm_grad 65536,4096
adamw 536870912
SHAPES
  return $code
}

peers() { python3 "$source/tests/gpu/peers.py"; }

step build build
if [ ! -x "$build/loong-bench" ]; then
  echo "run.sh: nothing was built: see $out/build.log" >&2
  exit 1
fi
step ops ops
step sanitizer sanitizer
step bench bench
step peers peers
python3 "$source/tests/gpu/report.py" "$device" "$out" || failed=1
exit $failed
