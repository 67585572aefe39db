#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that wants a Kunlun P800, in one command, without a network, within
# an hour (what no longer fits is ended, and told):
# builds, asks the vendor's libraries for all that is assumed of them, runs ops,
# collectives, copies and a small training, and writes one report. A library
# that fails, crashes or hangs is a row of it.
#
#   tests/xpu/run.sh [--out DIR] [--build DIR] [--ops LIST] [STAGE...]
#
#   --out    report.md, rows.tsv, log files and the kernel shim
#            (default: build-report)
#   --build  build folder (default: build-xpu); what is there is used
#   --ops    tests of ops, with commas (default: all)
#   STAGE    of build, shim, doctor, values, runtime, products, ops, ranks,
#            speed, training; all, in this order, when none is named
#
# The environment is that of backends/xpu/shim/build.sh (XPU_INCLUDE, XPU_LIB,
# XTDK, BKCL_INCLUDE), and LOONG_XPU_PATH where libraries are in none of the
# usual places. Without XPU_INCLUDE the shim that is found is taken. A row is
# "same", "DEVIATES", "lacks" (ops for which the shim has no kernel), "not
# tried", or "measured", which is compared with nothing.
# Exit code: 0 nothing deviates, 1 something does, 2 wrong use.
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
stages="build shim doctor values runtime products ops ranks speed training"
out=build-report build=build-xpu ops="" wanted=""

wrong() {
  echo "run.sh: $1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  --out | --build | --ops)
    [ $# -ge 2 ] || wrong "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  -*) wrong "unknown option $1" ;;
  *)
    [[ " $stages " == *" $1 "* ]] || wrong "no stage '$1', but $stages"
    wanted="$wanted $1"
    ;;
  esac
  shift
done
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
rows=$out/rows.tsv
: >"$rows"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# row VERDICT CLAIM ASSUMED FOUND
row() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$stage" "$1" "$2" "$3" \
    "$(tr '\t\n' '  ' <<<"$4" | cut -c 1-400)" | tee -a "$rows"
}

# within SECONDS: as many, or what is left of an hour
within() {
  local left=$((3500 - SECONDS))
  [ "$left" -gt 1 ] || left=1
  echo $(($1 < left ? $1 : left))
}

# run SECONDS LOG COMMAND...: its exit code, told in $got as words
run() {
  local code=0 log=$2 limit
  limit=$(within "$1")
  shift 2
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null || code=$?
  case $code in
  0) got="" ;;
  124 | 137) got="nothing within $limit s" ;;
  *)
    if [ $code -gt 128 ]; then
      got="ended by signal $((code - 128))"
    else
      got="exit $code"
    fi
    ;;
  esac
  return $code
}

# why LOG: what a log says of a failure, in a line
why() {
  grep -hiE 'error|fail|cannot|no such|lacks|not ' "$1" | head -n 3 |
    tr '\n' ' '
}

# verdict CLAIM ASSUMED SECONDS COMMAND...
verdict() {
  local claim=$1 assumed=$2 limit=$3 log
  log=$out/$stage-$(tr -c 'a-zA-Z0-9\n' _ <<<"$claim").log
  shift 3
  if run "$limit" "$log" "$@"; then
    row same "$claim" "$assumed" "as assumed"
  else
    row DEVIATES "$claim" "$assumed" "$got; $(why "$log")"
    return 1
  fi
}

# ---- stages ------------------------------------------------------------------

do_build() {
  local tests
  if [ ! -f "$build/build.ninja" ]; then
    verdict "configured" "by CMake" 600 cmake -S "$source" -B "$build" \
      -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOONG_CUDA=OFF || return
  fi
  tests=$(ninja -C "$build" -t targets all | grep -oE '^test_xpu_op_[a-z_]+')
  # shellcheck disable=SC2086
  verdict "built" "by Ninja" 3000 ninja -C "$build" loongrun loong-data \
    test_xpu_assumed $tests
}

do_shim() {
  local log=$out/shim-found.log
  if [ -z "${XPU_INCLUDE:-}" ]; then
    run 120 "$log" "$build/loongrun" --doctor
    if grep -q 'device *xpu: kernel shim: ' "$log"; then
      row "not tried" "kernel shim" "compiles against the installed headers" \
        "XPU_INCLUDE is not set: the shim that is found is taken"
    else
      row DEVIATES "kernel shim" "one is found" \
        "none, and XPU_INCLUDE is not set: none is built"
    fi
    return
  fi
  verdict "kernel shim" "compiles against the installed headers" 1800 \
    "$source/backends/xpu/shim/build.sh" "$out/shim"
}

do_doctor() {
  local told v=DEVIATES
  verdict "the doctor ends" "exit 0" 120 "$build/loongrun" --doctor
  told=$(grep -hm 1 'device *xpu: ' "$out"/doctor-*.log)
  [[ $told != *"xpu: Kunlun XPU3"* ]] || v=same
  row $v "a device is found" "Kunlun XPU3" "${told#*xpu: }"
}

# Rows of test_xpu_assumed, of a part.
assumed() {
  local code=0
  timeout -k 10 "$(within 900)" "$build/test_xpu_assumed" "$1" \
    2>"$out/$stage-$1.log" >"$out/$stage-$1.tsv" </dev/null || code=$?
  sed "s/^/$stage\t/" "$out/$stage-$1.tsv" | tee -a "$rows"
  [ $code -le 1 ] ||
    row DEVIATES "$1" "is asked to the end" "exit $code, $stage-$1.log"
}

do_values() { assumed values; }
do_runtime() { assumed runtime; }
do_products() { assumed products; }
do_speed() { assumed speed; }

do_ops() {
  local test name log lacks
  for test in "$build"/test_xpu_op_*; do
    name=${test##*/test_xpu_op_}
    [ -z "$ops" ] || [[ ",$ops," == *",$name,"* ]] || continue
    log=$out/$stage-$name.log
    if ! OP_LACKS=1 run 300 "$log" "$test"; then
      row DEVIATES "ops of $name" "equal to the reference" "$got; $(why "$log")"
      continue
    fi
    row same "ops of $name" "equal to the reference" "as assumed"
    lacks=$(sed -n 's/^lacks //p' "$log" | sort -u | paste -sd , | sed 's/,/, /g')
    [ -z "$lacks" ] ||
      row lacks "ops of $name" "kernels of the shim" "of some shapes none: $lacks"
  done
}

do_ranks() {
  local count=${LOONG_XPU_CARDS:-} n
  count=${count:-$("$build/test_xpu_assumed" runtime 2>/dev/null </dev/null |
    awk -F '\t' '$2 == "devices" { print $4 + 0 }')}
  for n in 2 8; do
    if [ "${count:-0}" -ge $n ]; then
      assumed ranks-$n
    else
      row "not tried" "collectives of $n ranks" "-" "not tried: ${count:-0} cards"
    fi
  done
}

# train_on DEVICE: a small training; what the device lacks is done by the host,
# and told.
train_on() {
  local hosts="" more="" i log
  for i in 1 2 3 4 5 6; do
    log=$out/training-$1-$i.log
    if run 300 "$log" "$build/loongrun" recipe.yaml device="$1" \
      train.host_ops="[$hosts]" log.dir="$PWD/$1"; then
      [ -z "$hosts" ] ||
        row measured "ops that the host does" "those the shim lacks" "$hosts"
      losses "$1" >"$1.txt"
      return
    fi
    more=$(sed -nE 's/.*xpu lacks: (.*) \(no kernel.*/\1/p;
      s/.*no kernel of device xpu for ([a-z_]+); see train.*/\1/p' "$log" |
      head -n 1)
    [ -n "$more" ] || break
    hosts=${hosts:+$hosts, }$more
  done
  row DEVIATES "a small training on $1" "three steps" "$got; $(why "$log")"
  return 1
}

do_training() {
  local place
  place=$(mktemp -d)
  cd "$place" || return
  . "$source/tests/sim/small_training.sh"
  write_training "$build" "$source" 2
  if train_on cpu && train_on xpu; then
    paste cpu.txt xpu.txt | while read -r cpu xpu; do
      awk -v a="$cpu" -v b="$xpu" 'BEGIN {
        d = a - b; if (d < 0) d = -d; exit !(d <= 64 / 16777216 * a) }' &&
        v=same || v=DEVIATES
      row "$v" "loss of a step, fp32" "$cpu within 3.8e-6" "$xpu"
    done
  fi
  cd "$source" || return
  rm -rf "$place"
}

# ---- report ------------------------------------------------------------------

# shellcheck disable=SC2016
table() { # VERDICT
  awk -F '\t' -v verdict="$1" '$2 == verdict { gsub(/\|/, "/")
    printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5 }' "$rows"
}

# shellcheck disable=SC2016
report() {
  local bad verdict head='| stage | verdict | claim | assumed | found |
|---|---|---|---|---|'
  bad=$(awk -F '\t' '$2 == "DEVIATES"' "$rows" | wc -l)
  {
    echo "# What was found of a Kunlun XPU"
    echo
    echo "$(date -u +%F), $(uname -srm)"
    echo
    echo "$(wc -l <"$rows") rows, $bad deviate."
    echo
    echo "$head"
    table DEVIATES
    for verdict in lacks "not tried" measured same; do
      printf '\n## %s\n\n%s\n' "${verdict^}" "$head"
      table "$verdict"
    done
    echo
    echo "## The doctor"
    echo
    cat "$out"/doctor-*.log 2>/dev/null | sed 's/^/    /'
  } >"$out/report.md"
  echo "$bad of $(wc -l <"$rows") rows deviate: $out/report.md"
  [ "$bad" = 0 ]
}

[ -z "${XPU_INCLUDE:-}" ] ||
  export LOONG_XPU_PATH="$out/shim:${LOONG_XPU_PATH:-${XPU_LIB:-}}"
for stage in ${wanted:-$stages}; do
  "do_$stage"
done
report
