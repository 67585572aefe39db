#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh against simulated libraries that deviate from what is assumed, one way
# at a time: the report has a row that says so, run.sh comes to its end, and
# without a deviation nothing is told.
#   rehearse.sh BUILD SOURCE [long]
# Without `long` one deviation of each sort that ends a process, and the shim as
# it was built here; with it all of them, and a shim made by build.sh.
set -u
build=$1
source=$2
long=${3:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset SIM_XPU_ODD SIM_XPU_STRICT
export LOONG_XPU_PATH=$build/xpusim_card:$build/xpusim
bad=0

fail() {
  echo "FAILED: $*"
  grep DEVIATES "$place/log"
  tail -n 5 "$place/log"
  bad=1
}

# stages STAGES [NAME=VALUE...]: the exit code of run.sh
stages() {
  local names=$1
  shift
  # shellcheck disable=SC2086
  timeout 900 env "$@" "$source/tests/xpu/run.sh" --out "$place/out" \
    --build "$build" --ops "${ops:-}" $names >"$place/log" 2>&1
}

# deviates STAGE CLAIM FOUND NAME=VALUE...: the row, and no other of a stage
# that does not know of it
deviates() {
  local stage=$1 claim=$2 found=$3 code=0
  shift 3
  stages "$stage" "$@" || code=$?
  [ $code = 1 ] || fail "$*: exit $code"
  awk -F '\t' -v claim="$claim" -v found="$found" '
    $2 == "DEVIATES" && index($3, claim) && index($5, found) { seen = 1 }
    END { exit !seen }' "$place/out/rows.tsv" ||
    fail "$*: no row of '$claim' with '$found'"
  grep -q "| DEVIATES | .*$claim" "$place/out/report.md" ||
    fail "$*: the report lacks '$claim'"
}

ops=kl_estimate stages ops SIM_XPU_LACKS=kl_estimate LOONG_XPU_PATH="$build/xpusim"
grep -q '| ops | lacks | ops of kl_estimate .* kl_estimate of fp32' "$place/out/report.md" ||
  fail 'what a shim lacks is not told'

# As assumed, with a training by the shim of real devices.
if [ -n "$long" ]; then
  cat >"$place/xtdk" <<SH
#!/bin/bash
# The vendor's compiler: .xpu is C++ with other headers.
args=()
for a in "\$@"; do
  case \$a in
  --xpu-arch=*) ;;
  *.xpu) args+=(-x c++ "\$a") ;;
  *) args+=("\$a") ;;
  esac
done
exec c++ -O3 -fno-tree-vectorize -fno-tree-slp-vectorize -fno-store-merging \
  -fno-exceptions -fno-rtti -fsanitize=thread -fno-omit-frame-pointer \
  -I$source/tests/sim "\${args[@]}"
SH
  chmod +x "$place/xtdk"
  ops=softmax_cross_entropy,tables
  sim=$source/tests/sim/xpu
  OP_CASES=1 SIM_XPU_COUNT=8 XPU_INCLUDE=$sim/include:$sim XPU_LIB=$build/xpusim \
    XTDK=$place/xtdk BKCL_INCLUDE=$sim/include LOONG_XPU_PATH=$build/xpusim \
    stages "shim doctor values runtime products ops ranks speed training"
  code=$?
else
  ops=tables
  stages "values runtime ops training"
  code=$?
fi
! grep -q 'ops that the host does' "$place/out/report.md" ||
  fail 'a dense model needs no op of the host'
[ $code = 0 ] || fail "as assumed: exit $code"
grep -q ' 0 deviate' "$place/out/report.md" || fail 'nothing deviates'
grep -q '| training | same | loss of a step, fp32 |' "$place/out/report.md" ||
  fail 'no training'

deviates "shim doctor" 'a device is found' 'No such file' LOONG_XPU_PATH="$place"
grep -q 'DEVIATES	kernel shim	' "$place/log" || fail 'a shim is found'
stages ranks LOONG_XPU_CARDS=1 || fail "ranks of a card: exit $?"
grep -q '| ranks | not tried | collectives of 2 ' "$place/out/report.md" ||
  fail 'collectives are told as tried'

deviates runtime 'a stream waits for an event' 'ended by signal 11' \
  SIM_XPU_DEVIATES=swapped_wait
if [ -n "$long" ]; then
  stages speed || fail "speed: exit $?"
  ! grep -q '	same	' "$place/out/rows.tsv" || fail 'a speed is the same'
  deviates runtime 'xpu_event_wait, then' 'nothing within' \
    SIM_XPU_DEVIATES=no_event_wait
  deviates runtime xpu_event_query '0 behind 192 MiB' \
    SIM_XPU_DEVIATES=query_early
  deviates runtime xpumlMemory_t 'total 4096' SIM_XPU_DEVIATES=ml_fields
  deviates products 'bf16 x bf16 to fp32' 'of the sum of magnitudes' \
    SIM_XPU_DEVIATES=bf16_sums
  deviates ranks 'BKCL, 2 ranks' 'bkcl_all_reduce' \
    SIM_XPU_DEVIATES=bkcl_values LOONG_XPU_CARDS=2
  deviates runtime 'blocking copies' 'gives 707' SIM_XPU_ODD=1
  deviates runtime 'attribute 4' 210 SIM_XPU_MODEL=210
  deviates values 'missing libraries' xpu_event_query \
    SIM_XPU_DEVIATES=no_event_query
  deviates runtime 'an asynchronous copy of 1 MiB' -999 SIM_XPU_MAX_ASYNC=65536
  deviates runtime 'streams of a device' 'number 5 gives' SIM_XPU_STREAMS=4
  deviates runtime 'sign of errors' negative SIM_XPU_NEG_ERR=1
  deviates runtime 'memory begins at' 16 SIM_XPU_OFFSET=16
fi
exit $bad
