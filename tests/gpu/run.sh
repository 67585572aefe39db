#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that wants an NVIDIA GPU, in one command: builds, tests, trains,
# measures, and writes one table.
#
#   tests/gpu/run.sh [--out DIR] [--build DIR] [--libraries FILE]
#                    [--llmc DIR] [--limit SECONDS] [STAGE...]
#
#   --out        log files, report.json and report.md (default: gpu-report)
#   --build      build folder (default: build-gpu)
#   --libraries  archive of tests/gpu/pack.sh, for a machine without the host
#                libraries; nothing is ever downloaded
#   --llmc       folder of llm.c's sources, to be timed beside ours
#   --limit      seconds of a stage (default: 480), after which it is ended
#   STAGE        of build, ops, golden, training, kernels, llama, gpt2, gaps,
#                sanitizer; all, in this order, when none is named
#
# A stage that fails does not hold up the next, and one that is repeated takes
# the place of its earlier result: a GPU that is lent for some minutes at a time
# gets stage by stage into one table. Exit code: 0 nothing failed, 1 a stage
# failed, 2 wrong use or no GPU. The machine's clocks are left alone.
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
gpu=$source/tests/gpu
stages="build ops golden training kernels llama gpt2 gaps sanitizer"
out=gpu-report build=build-gpu libraries="" llmc="" limit=480 wanted=""

wrong() {
  echo "run.sh: $1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  --out | --build | --libraries | --llmc | --limit)
    [ $# -ge 2 ] || wrong "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  -*) wrong "unknown option $1" ;;
  *)
    [[ " $stages " == *" $1 "* ]] ||
      wrong "stage $1: must be of ${stages// /, }"
    wanted="$wanted $1"
    ;;
  esac
  shift
done
wanted=${wanted:-$stages}
[[ $limit =~ ^[1-9][0-9]*$ ]] || wrong "--limit $limit: must be whole seconds"
[ -z "$libraries" ] || [ -f "$libraries" ] ||
  wrong "--libraries $libraries: there is no such file"
[ -z "$llmc" ] || [ -f "$llmc/train_gpt2.cu" ] ||
  wrong "--llmc $llmc: there is no train_gpt2.cu in it"
mkdir -p "$out" "$build" || exit 2
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
[ -z "$llmc" ] || llmc=$(cd "$llmc" && pwd)

need() { command -v "$1" >/dev/null || wrong "$1 was not found: $2"; }
need nvidia-smi "is there an NVIDIA driver?"
need python3 "version 3.8 or newer; no packages"
device=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total \
  --format=csv,noheader | head -1)
[ -n "$device" ] || wrong "nvidia-smi shows no GPU"
architecture=$(echo "$device" | awk -F', ' '{gsub(/\./, "", $2); print $2}')
[ "$architecture" != 90 ] || architecture=90a
echo "$device"

if [ -n "$libraries" ]; then
  packed=$build/libraries
  mkdir -p "$packed" && tar -C "$packed" -xJf "$libraries" || exit 2
  export PATH=$packed/bin:$PATH
  export C_INCLUDE_PATH=$packed/include CPLUS_INCLUDE_PATH=$packed/include
  export LIBRARY_PATH=$packed/lib
  export LD_LIBRARY_PATH=$packed/lib:${LD_LIBRARY_PATH:-}
  export PKG_CONFIG_PATH=$packed/lib/pkgconfig
fi
# One process on one GPU: nothing is to be bound or launched.
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cores} GOMP_SPINCOUNT=10000

# stage NAME: its log, and a line of result, code and seconds in place of an
# earlier one.
stage() {
  local name=$1 begin code result reason=""
  begin=$(date +%s)
  timeout -k 10 "$limit" "$gpu/stages.sh" "$name" > "$out/$name.log" 2>&1
  code=$?
  case $code in
  0) result=passed ;;
  77)
    result="not run"
    reason=$(tail -1 "$out/$name.log")
    reason=${reason#not run: }
    ;;
  124 | 137) result="ended after $limit s" ;;
  *) result=FAILED ;;
  esac
  sed -i "/^$name\t/d" "$out/stages.tsv"
  printf '%s\t%s\t%d\t%s\n' "$name" "$result" $(($(date +%s) - begin)) \
    "$reason" >> "$out/stages.tsv"
  echo "$name: $result${reason:+: $reason}, $(($(date +%s) - begin)) s"
  case $code in 0 | 77) return 0 ;; esac
  tail -15 "$out/$name.log"
  return 1
}
export source build out llmc architecture cores
touch "$out/stages.tsv"
failed=0
for name in $stages; do
  [[ " $wanted " == *" $name "* ]] || continue
  stage "$name" || failed=1
done
python3 "$gpu/report.py" "$device" "$out" || failed=1
name=$(date +%F)-$(echo "${device%%,*}" | tr 'A-Z ' 'a-z-')
echo "to keep the tables: mkdir -p $source/docs/measurements, then"
for kind in md json; do
  echo "  cp $out/report.$kind $source/docs/measurements/$name.$kind"
done
exit $failed
