#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that wants an NVIDIA GPU, in one command: builds, tests, trains,
# measures, and writes one table.
#
#   tests/gpu/run.sh [--budget SECONDS] [--limit SECONDS] [--again]
#                    [--out DIR] [--build DIR] [--libraries FILE]
#                    [--llmc DIR] [STAGE...]
#
#   --budget     seconds of the whole call; stages that no longer fit are left
#                to the next one (default: none)
#   --limit      seconds of a stage (default: 480), after which it is ended
#   --again      repeats what is ready
#   --out        log files, report.json, report.md, and all of them as
#                report.tar.gz (default: build-report)
#   --build      build folder (default: build-gpu)
#   --libraries  archive of tests/gpu/pack.sh, for a machine without the host
#                libraries; nothing is ever downloaded
#   --llmc       folder of llm.c's sources, to be timed beside ours
#   STAGE        of build, doctor, ops, llama, kernels, golden, training, gpt2,
#                gaps, sanitizer; all, in this order, when none is named
#
# The order is that of worth, and the report is written anew behind each stage:
# whoever has a GPU for some minutes at a time calls this again with the same
# folders until nothing is left. What passed since the last build is skipped,
# and of a stage that was ended what it had measured is kept. Exit code: 0
# nothing failed, 1 a stage failed, 2 wrong use or no GPU. The machine's clocks
# are left alone.
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
gpu=$source/tests/gpu
stages="build doctor ops llama kernels golden training gpt2 gaps sanitizer"
out=build-report build=build-gpu libraries="" llmc="" limit=480 budget=0
wanted="" again=0
clock() { date +%s; }
started=$(clock)

# Seconds that a stage is expected to take on one H200 with 16 cores: predicted,
# not measured. A stage that keeps what it has done (+) may begin with fewer.
declare -A takes=([build]=150+ [doctor]=15 [ops]=90 [llama]=330+ [kernels]=240+
  [golden]=60 [training]=200 [gpt2]=300+ [gaps]=120+ [sanitizer]=480+)
least=45     # of a stage that goes on in the next call
reporting=20 # for the last report, and for what does not end when told

wrong() {
  echo "run.sh: $1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  --out | --build | --libraries | --llmc | --limit | --budget)
    [ $# -ge 2 ] || wrong "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  --again) again=1 ;;
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
[[ $budget =~ ^[0-9]+$ ]] || wrong "--budget $budget: must be whole seconds"
[ -z "$libraries" ] || [ -f "$libraries" ] ||
  wrong "--libraries $libraries: there is no such file"
[ -z "$llmc" ] || [ -f "$llmc/train_gpt2.cu" ] ||
  wrong "--llmc $llmc: there is no train_gpt2.cu in it"

# ---- what the build needs, before anything else -----------------------------

lacking() {
  local header found=""
  command -v cc >/dev/null || return 0 # cmake says it better
  for header in oneapi/dnnl/dnnl.h yaml.h jansson.h pcre2.h utf8proc.h zstd.h \
    zlib.h lzma.h xxhash.h cmocka.h jpeglib.h png.h webp/decode.h archive.h; do
    cc -E -x c - <<< "#if !__has_include(<$header>)
#error
#endif" >/dev/null 2>&1 || found="$found $header"
  done
  pkg-config --exists hdf5 2>/dev/null || found="$found hdf5.pc"
  echo "$found"
}
packed=$build/libraries
if [ -n "$libraries" ]; then
  mkdir -p "$packed" && tar -C "$packed" -xJf "$libraries" || exit 2
fi
if [ -d "$packed/lib" ]; then
  packed=$(cd "$packed" && pwd)
  export PATH=$packed/bin:$PATH
  export C_INCLUDE_PATH=$packed/include CPLUS_INCLUDE_PATH=$packed/include
  export LIBRARY_PATH=$packed/lib PKG_CONFIG_PATH=$packed/lib/pkgconfig
else
  packed=""
fi
if [[ " $wanted " == *" build "* ]]; then
  missing=$(lacking)
  [ -z "$missing" ] || wrong "the build lacks host libraries ($missing ): where \
\`make deps\` did its work, run tests/gpu/pack.sh libraries.tar.xz; bring that \
file here and add --libraries libraries.tar.xz"
fi

# ---- the machine ------------------------------------------------------------

need() { command -v "$1" >/dev/null || wrong "$1 was not found: $2"; }
need nvidia-smi "is there an NVIDIA driver?"
need python3 "version 3.8 or newer; no packages"
device=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total \
  --format=csv,noheader | head -1)
[ -n "$device" ] || wrong "nvidia-smi shows no GPU"
architecture=$(echo "$device" | awk -F', ' '{gsub(/\./, "", $2); print $2}')
[ "$architecture" != 90 ] || architecture=90a
mkdir -p "$out" "$build" || exit 2
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
[ -z "$llmc" ] || llmc=$(cd "$llmc" && pwd)
echo "$device"

# Where our programs look for libraries that the linker's cache does not name:
# what was packed, and what Python's packages of NVIDIA have.
rpath=$packed
rpath=${rpath:+$rpath/lib}$(python3 "$gpu/doctor.py" wheels)
rpath=${rpath#;}
# One process on one GPU: nothing is to be bound or launched.
cores=$(nproc)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cores} GOMP_SPINCOUNT=10000

# ---- stages -----------------------------------------------------------------

left() { echo $((budget == 0 ? 1000000 : started + budget - reporting - $(clock))); }

# note NAME RESULT SECONDS REASON: a line in place of an earlier one.
note() {
  sed -i "/^$1\t/d" "$out/stages.tsv"
  printf '%s\t%s\t%d\t%s\n' "$@" >> "$out/stages.tsv"
  echo "$1: $2${4:+: $4}, $3 s"
}

# Passed since the programs were last built.
is_ready() {
  [ $again = 0 ] && [ "$1" != build ] &&
    grep -q "^$1"$'\t'passed$'\t' "$out/stages.tsv" &&
    [ ! "$build/loong-bench" -nt "$out/$1.log" ]
}

# stage NAME: its log and its line.
stage() {
  local name=$1 begin code result reason="" seconds room
  local about=${takes[$name]%+}
  begin=$(clock) room=$(left)
  [ "$room" -lt "$limit" ] || room=$limit
  if [ "$room" -lt "$about" ] && [ "$room" -lt "$limit" ] &&
    { [ "${takes[$name]}" = "$about" ] || [ "$room" -lt $least ]; }; then
    grep -q "^$name"$'\t' "$out/stages.tsv" ||
      note "$name" "not run" 0 "$room s of the budget are left, it takes about \
$about"
    return 0
  fi
  ran=1
  timeout -k 10 "$room" "$gpu/stages.sh" "$name" > "$out/$name.log" 2>&1
  code=$?
  seconds=$(($(clock) - begin))
  case $code in
  0) result=passed ;;
  77)
    result="not run"
    reason=$(tail -1 "$out/$name.log")
    reason=${reason#not run: }
    ;;
  124 | 137)
    result="ended after $room s"
    [ "${takes[$name]}" = "$about" ] || reason="the next call goes on from here"
    ;;
  *) result=FAILED ;;
  esac
  note "$name" "$result" "$seconds" "$reason"
  case $code in 0 | 77) return 0 ;; esac
  tail -15 "$out/$name.log"
  [ "$code" = 124 ] && [ "$room" -lt "$limit" ] # the budget's end is no failure
}

report() {
  python3 "$gpu/report.py" "$device" "$out" || return 1
  (cd "$out" && shopt -s nullglob && tar -czf report.tar.gz.new report.json \
    report.md stages.tsv -- *.log && mv report.tar.gz.new report.tar.gz)
}

export source build out llmc architecture cores rpath again
touch "$out/stages.tsv"
failed=0
for name in $stages; do
  [[ " $wanted " == *" $name "* ]] || continue
  if is_ready "$name"; then
    echo "$name: passed before"
    continue
  fi
  ran=0
  stage "$name" || failed=1
  [ $ran = 0 ] || report || failed=1
done
report || failed=1
name=$(date +%F)-$(echo "${device%%,*}" | tr 'A-Z ' 'a-z-')
echo "all of it: $out/report.tar.gz"
echo "to keep the tables: mkdir -p $source/docs/measurements, then"
for kind in md json; do
  echo "  cp $out/report.$kind $source/docs/measurements/$name.$kind"
done
exit $failed
