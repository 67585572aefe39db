#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_run.sh SOURCE: tests/gpu/run.sh from its options to its tables, on
# a machine without a GPU: nvidia-smi, nvcc, cmake, ctest, nsys, the sanitizer
# and our own programs are made up, and say what real ones would.
set -u
source=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
mkdir bin build
export CUDA_VISIBLE_DEVICES=0
python=$(python3 -c 'import sys; print(sys.executable)') || exit 1
for name in awk basename bash cat chmod cp cut date dirname env git grep gzip \
  head mkdir mv nproc printf rm sed sleep sort tail tar tee timeout touch tr wc xz; do
  path=$(command -v $name) || { echo "$name is missing"; exit 1; }
  printf '#!/bin/sh\nexec %s "$@"\n' "$path" > bin/$name
done
ln -sf "$(command -v bash)" bin/bash
printf '#!/bin/sh\nexec %s "$@"\n' "$python" > bin/python3
chmod +x bin/*
PATH=$place/bin

fail() {
  printf 'FAILED: %s\n' "$1"
  tail -n 12 said
  exit 1
}

# tool NAME: a made-up program, from standard input.
tool() {
  { echo '#!/usr/bin/env bash'; cat; } > "$1"
  chmod +x "$1"
}

# ---- made-up tools ----------------------------------------------------------

tool bin/nvidia-smi <<'TOOL'
case "$*" in
*query-gpu=name*) echo "NVIDIA H200, 9.0, 580.159.04, 143771 MiB" ;;
*memory.used*) [ -e busy ] && echo 81000 || echo 600 ;;
*memory.free*) echo 143000 ;;
*) exit 9 ;;
esac
TOOL
for name in nvcc make cc pkg-config; do
  echo "exit 0" | tool bin/$name
done
tool bin/cmake <<'TOOL'
echo "cmake $*"
TOOL
tool bin/ctest <<'TOOL'
echo " 1/2 Test #1: gpu_op_linear ....   Passed    1.00 sec"
[ ! -e broken ] || { echo " 2/2 Test #2: gpu_op_moe ....***Failed"; exit 8; }
TOOL
tool bin/compute-sanitizer <<'TOOL'
echo "========= ERROR SUMMARY: 0 errors"
echo "${@: -1} $2" >> ../sanitizer_calls
TOOL
# A kernel of 0.9 ms each millisecond, in nsys's tables.
tool bin/nsys <<'TOOL'
while [ "$1" != -o ]; do shift; done
if [[ $2 == *.sqlite ]]; then
  python3 - "$2" <<'PYTHON'
import sqlite3, sys
data = sqlite3.connect(sys.argv[1])
data.execute("create table StringIds (id, value)")
data.execute("insert into StringIds values (1, 'multiply')")
data.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, "
             "mangledName)")
data.executemany("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 1)",
                 [(i * 1000000, i * 1000000 + 980000) for i in range(1000)])
data.commit()
PYTHON
else
  touch "$2.nsys-rep"
fi
TOOL
tool build/loong-bench <<'TOOL'
case $1 in
op)
  echo "$*" >> bench_calls
  [ -z "${LD_DEBUG:-}" ] || echo "7: calling init: /x/libcudnn.so.9" >&2
  while [ $# -gt 1 ]; do
    case $1 in --op) op=$2 ;; --shape) shape=$2 ;; esac
    shift
  done
  printf '{"op":"%s","kernel":"%s_cuda","dtype":"bf16","device":"cuda",' \
    "$op" "$op"
  printf '"shape":[%s],"ms_best":1.9,"ms_median":2,"gflops":700000,' "$shape"
  echo '"gbytes_per_s":4000,"runs":9}'
  ;;
step)
  for i in {1..100}; do # what the preloaded library would see
    [ -z "${LOONG_TRACE:-}" ] ||
      echo "kernel ${i}000000 ${i}950000 multiply" >> "$LOONG_TRACE"
  done
  touch busy
  sleep 0.5
  rm busy
  echo '{"bench":"step","recipe":"r","dtype":"bf16","ms_median":500,' \
    '"tokens_per_second":65536,"peak_mib":900,"steps":12}' | tr -d '\n'
  echo
  ;;
esac
TOOL
# --dry-run: 20 GiB and 4 a layer. Else the curve of the processor.
tool build/loongrun <<'TOOL'
[ "$1" != --doctor ] || { echo "driver 13.0"; exit 0; }
layers=16 dir="" steps=7 graphs=""
for a; do
  case $a in
  model.foundation.num_layers=*) layers=${a#*=} ;;
  log.dir=*) dir=${a#*=} ;;
  train.train_iters=*) steps=${a#*=} ;;
  precision.params_dtype=*) dtype=${a#*=} ;;
  train.cuda_graph_impl=*) graphs=${a#*=} ;;
  esac
done
if [ "$1" = --dry-run ]; then
  echo "  on the device  $((20 + 4 * layers)).00 GiB"
  exit 0
fi
mkdir -p "$dir/save"
[ "$graphs" != local ] || echo "graphs: 6 of the device's, 3.5 MiB"
[ "$graphs" != none ] || OFF=${OFF_WITHOUT:-1}
python3 - "$CURVE" "$dtype" "$steps" "${OFF:-1}" > "$dir/metrics.jsonl" \
  <<'PYTHON'
import json, sys
path, dtype, steps, off = sys.argv[1:]
loss, norm = json.load(open(path))["processor"][dtype]
for i in range(int(steps)):
    at = min(i, len(loss) - 1)
    print(json.dumps(dict(step=i + 1, loss=loss[at] * float(off) if i < 900
                          else 1.3, grad_norm=norm[at],
                          tokens_per_second=1e5)))
PYTHON
TOOL
tool build/loong-ckpt <<'TOOL'
[ $# = 3 ] && [ "$1" = diff ] && [ -d "$2" ] && [ -d "$3" ]
TOOL
export CURVE=$source/tests/gpu/curve.json
touch build/CTestTestfile.cmake
echo "exit 0" | tool build/test_gpu_op_linear
mkdir -p out/training && touch out/training/corpus.idx
mkdir llmc && touch llmc/train_gpt2.cu
tool llmc/train_gpt2cu <<'TOOL'
for i in 1 2 3 4; do
  echo "step $i/4 | loss 1.0 (+0.1z)| norm 1.0 (+0.1z)| lr 3.00e-04 |" \
    "60.00 ms | 50.0% bf16 MFU | 9 tok/s"
done
TOOL

# ---- runs -------------------------------------------------------------------

# run CODE ARGUMENTS...
run() {
  local wanted=$1 code=0
  shift
  "$source/tests/gpu/run.sh" --out out --build build "$@" > said 2>&1 ||
    code=$?
  [ "$code" = "$wanted" ] || fail "run.sh $*: exit code $code, not $wanted"
}
# has FILE TEXT...
has() {
  local file=$1 text
  shift
  for text; do
    grep -qF -- "$text" "$file" || fail "$file does not say: $text"
  done
}

run 2 --out
run 2 ops nonsense
has said 'stage nonsense: must be of build, doctor, ops'
run 2 --limit soon
run 2 --llmc build
run 2 --libraries nothing
run 2 --budget soon
echo "exit 1" | tool bin/cc
run 2
has said 'the build lacks host libraries ( oneapi/dnnl/dnnl.h yaml.h' \
  'run tests/gpu/pack.sh libraries.tar.xz'
[ ! -e out/stages.tsv ] || fail "a stage was begun without libraries"
echo "exit 0" | tool bin/cc
mv bin/nvidia-smi aside
run 2 ops
has said 'nvidia-smi was not found'
mv aside bin/nvidia-smi

# Everything, in order.
run 0 --llmc llmc
[ "$(cut -f1 out/stages.tsv | tr '\n' ' ')" = "build doctor ops llama kernels \
golden training gpt2 gaps sanitizer " ] || fail "stages: $(cat out/stages.tsv)"
tar -tzf out/report.tar.gz > packed || fail "report.tar.gz"
has packed report.md report.json llama.log
[ -z "${LD_LIBRARY_PATH:-}" ] || fail "LD_LIBRARY_PATH is set here"
has said "docs/measurements/$(date +%F)-nvidia-h200.md"
has out/build.log 'DLOONG_CUDA_ARCHITECTURES=90a' '--target gpu'
has out/llama.log 'layers that fit: 27' '"attention": "local"' \
  '"seq_length": 32768'
has out/doctor.log 'driver 13.0' '"library": "cuDNN", "path": "/x/libcudnn.so.9'
has out/report.md '# NVIDIA H200, 9.0' \
  '| llama: TFLOP/s | >= 480 |' \
  '| gpt2_1.5b: against llm.c | >= 1.05 | 0.24 x' '**missed**' \
  '| rmsnorm: share of a copy, % | >= 85 | 100 (4000 GB/s) | 1.18 | met |' \
  '| llama: memory above --dry-run, % | <= 2 |' \
  '| gpt2_1.5b: time between kernels, % of a step | <= 3 | 2.00 (by nsys' \
  '| bf16 | passed | 3000 |' '| fp32 | passed | 7 |' \
  '| bf16 | equal | 7 | 6 |' '| fp32 | equal | 7 | 6 |'
python3 - out/report.json <<'PYTHON' || fail "report.json"
import json, sys
report = json.load(open(sys.argv[1]))
assert len(report["targets"]) == 32, report["targets"]
assert [s["result"] for s in report["stages"]] == ["passed"] * 10
assert len(report["sanitizer"]) == 4, report["sanitizer"]
PYTHON

# Nothing is left to do; what was measured is kept even where it is repeated
# after the end of a stage.
calls=$(wc -l < bench_calls)
run 0
has said 'doctor: passed before' 'sanitizer: passed before'
sed -i 's/^kernels\tpassed/kernels\tended after 1 s/' out/stages.tsv
run 0
has said 'kernels: passed,'
[ "$(wc -l < bench_calls)" = "$calls" ] || fail "kernels were timed again"

# A stage again: what passed the sanitizer is not repeated; nsys and the
# sanitizer are missing; a curve that is too far off, an op test that fails;
# graphs that do something else.
run 0 --again sanitizer
[ "$(wc -l < sanitizer_calls)" = 2 ] || fail "the sanitizer ran again"
mv bin/nsys bin/compute-sanitizer .
touch build/libloong_trace.so
run 0 --again gaps
has out/report.md \
  '| gpt2_1.5b: time between kernels, % of a step | <= 3 | 4.92 (by CUPTI'
rm build/libloong_trace.so
run 0 --again gaps sanitizer
has out/report.md 'not run: no nsys on PATH' \
  '| sanitizer | not run: compute-sanitizer was not found |'
touch broken
OFF=1.01 run 1 --again training ops
has said 'ops: FAILED' 'training: FAILED'
has out/training.log 'FAIL'
has out/report.md '| ops | FAILED |' '| fp32 | FAILED | 7 |' \
  '| kernels | passed |'
rm broken
OFF_WITHOUT=1.00000001 run 1 training
has out/report.md '| fp32 | passed | 7 |' '| fp32 | **DIFFERENT** | 7 | 6 |'
run 0 ops
has said 'ops: passed,' # not skipped: it had failed
has out/report.md '| ops | passed |'

# A machine without git.
mv bin/git aside
run 0 --again ops
has out/report.md 'commit unknown'
mv aside bin/git

# What does not end.
tool bin/ctest <<'TOOL'
sleep 60
TOOL
run 1 --again --limit 1 golden
has out/report.md '| golden | ended after 1 s |'

# Nothing is built.
rm build/loong-bench
run 0 --again kernels
has said 'kernels: not run: loong-bench is not built: run stage build'

# ---- a rehearsal ------------------------------------------------------------

# Stand-ins for whole stages that take the predicted seconds, by a clock that
# they and the report move on: three calls of 540 s each end in time, behind
# each there is a report, and behind the last every stage has its result. Stages
# that keep what they did go on where they were.
mkdir -p tests && cp -r "$source/tests/gpu" tests/ || exit 1
source=$place
echo 1000000 > now
export PLACE=$place
tool bin/date <<'TOOL'
case $1 in
+%s) cat "$PLACE/now" ;;
*) echo 2030-01-01 ;;
esac
TOOL
tool bin/timeout <<'TOOL'
room=$3 exec "${@:4}"
TOOL
tool tests/gpu/stages.sh <<'TOOL'
declare -A takes=([build]=150 [doctor]=15 [ops]=90 [llama]=330 [kernels]=240
  [golden]=60 [training]=200 [gpt2]=300 [gaps]=120 [sanitizer]=480)
was=0 now=$(cat "$PLACE/now")
[ ! -e "$out/$1.was" ] || was=$(cat "$out/$1.was")
needs=$((takes[$1] - was))
used=$((needs < room ? needs : room))
echo $((now + used)) > "$PLACE/now"
case $1 in
ops | golden | training | doctor) ;;
*) echo $((was + used)) > "$out/$1.was" ;;
esac
[ $used = $needs ] || exit 124
TOOL
printf '#!/bin/sh\ncase $1 in *report.py) echo $(($(cat %s) + 2)) > %s ;; esac
exec %s "$@"\n' "$place/now" "$place/now" "$python" > bin/python3
rm -rf out
touch build/loong-bench
for call in 1 2 3; do
  begin=$(cat now)
  run 0 --budget 540
  took=$(($(cat now) - begin))
  echo "call $call of a rehearsal: $took s"
  cut -f1-3 out/stages.tsv
  [ $took -le 540 ] || fail "call $call took $took s of 540"
  [ -s out/report.tar.gz ] && [ -s out/report.md ] || fail "no report"
done
[ "$(cut -f1 out/stages.tsv | sort | tr '\n' ' ')" = "build doctor gaps golden \
gpt2 kernels llama ops sanitizer training " ] || fail "$(cat out/stages.tsv)"
[ "$(grep -c passed out/stages.tsv)" -ge 9 ] || fail "$(cat out/stages.tsv)"
