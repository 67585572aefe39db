#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: training.sh BUILD SOURCE MPIRUN RANKS: processes with a simulated XPU
# each, as a person starts them, whose collectives are BKCL's: the losses of the
# processor, with shards of optimizer and gradients and, of four ranks, two
# pipeline stages.
set -u
build=$1
source=$2
mpirun=$3
ranks=$4
. "$source/tests/in_place.sh"
. "$source/tests/sim/small_training.sh"

# train DIR ARGUMENTS...
train() {
  local dir=$1 got=0
  shift
  timeout -k 5 60 "$mpirun" --oversubscribe -n "$ranks" "$build/loongrun" \
    recipe.yaml "$@" log.dir="$dir" >out 2>err || got=$?
  [ "$got" = 0 ] || fail "$*: exit $got"
}

write_training "$build" "$source" 2
export SIM_XPU_COUNT=$ranks
train cpu device=cpu
train xpu device=xpu
alike cpu xpu 3
if [ "$ranks" = 4 ]; then
  train cpu2 device=cpu parallel.pipeline_model_parallel_size=2
  train xpu2 device=xpu parallel.pipeline_model_parallel_size=2
  alike cpu2 xpu2 3
fi
# What was measured of each kind says how many micro-batches it gets.
if [ "$ranks" = 2 ]; then
  echo '{"nanoseconds_of_micro_batch": {"xpu": 1, "cpu": 7}}' >speeds.json
  "$build/loong-bench" speeds recipe.yaml device=cpu --steps 2 \
    --out speeds.json 2>err || fail "speeds: $(tail -n 1 err)"
  grep -q '{"cpu": [0-9]*, "xpu": 1}}$' speeds.json || fail 'file of speeds'
  grep -q '"cpu": 7' speeds.json && fail 'a speed that was not measured'
  optim=parallel.data_parallel_sharding=optim
  train mixed 'devices=[xpu:0, cpu:1]' $optim \
    parallel.data_parallel_shares=[3,1]
  grep -q 'rank 0 (xpu) 3; data-parallel rank 1 (cpu) 1$' out err ||
    fail 'shares are not told'
  alike cpu mixed 3
  echo '{' >broken.json
  "$build/loong-bench" speeds recipe.yaml device=cpu --out broken.json \
    >out 2>err && fail 'a broken file of speeds'
  grep -q 'ms of a micro-batch' err && fail 'a broken file is found too late'
  echo '{"nanoseconds_of_micro_batch": {"xpu": 10, "cpu": 30, "cuda": 9}}' \
    >made.json
  SIM_XPU_COUNT=0 "$build/loongrun" recipe.yaml --dry-run --ranks 2 $optim \
    parallel.data_parallel_speeds=made.json >out 2>err ||
    fail "speeds of device auto: $(cat err)"
  grep -q 'data-parallel ranks 0-1 (c[a-z]*) 2 each$' out err ||
    fail "the kind that auto is: $(cat out err)"
  ! timeout -k 5 60 "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
    recipe.yaml $optim device=cpu parallel.data_parallel_shares=[3] \
    >out 2>err || fail 'a share for each of two ranks'
  grep -q 'found 1, wanted one of each of the 2' err ||
    fail "shares: $(cat err)"
  grep -q 'rank 1:' err && fail 'the second rank tells it too'
  "$build/loongrun" recipe.yaml 'devices=[xpu:0, cpu:1]' --dry-run --ranks 2 \
    $optim parallel.data_parallel_speeds=made.json >out 2>err
  # 3 of 10 beside 1 of 30; all 4 of them alone take 40 and 120.
  grep -q 'simulated: 3e-05 ms .* xpu alone 4e-05 ms, 1.33 x; .* 4.00 x$' out ||
    fail "what is gained: $(cat out err)"
  for refused in "$optim:has no micro-batch of a step of 4 samples" \
    'x=1:optim_grads and optim_grads_params sum in every micro-batch'; do
    "$build/loongrun" recipe.yaml 'devices=[xpu:0, cpu:1]' --check --ranks 2 \
      parallel.data_parallel_speeds=speeds.json \
      "$(echo "${refused%%:*}" | sed 's/x=1/log.interval=1/')" >out 2>err &&
      fail "shares are not refused: $refused"
    grep -q "${refused#*:}" err || fail "shares: $(cat err)"
  done
fi
# The loss of a vocabulary in parts calls other ranks in between, which the
# processor does for the device.
if [ "$ranks" = 2 ]; then
  train tp device=xpu 'train.host_ops=[cross_entropy]' \
    parallel.tensor_model_parallel_size=2
  alike cpu tp 3
  ! timeout -k 5 60 "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
    recipe.yaml 'devices=[xpu:0, cpu:1]' 'train.host_ops=[cross_entropy]' \
    parallel.tensor_model_parallel_size=2 --check >out 2>err ||
    fail 'a vocabulary in parts on two kinds of devices'
  grep -q 'needs tensor-parallel ranks on devices of one kind' err ||
    fail 'what tensor-parallel ranks of two kinds are told'
fi
# By the shim of cards the device does it: nothing is left to the host.
if [ "$ranks" = 4 ]; then
  LOONG_XPU_PATH=$build/xpusim_card:$build/xpusim SIM_XPU_ODD='' train card \
    device=xpu parallel.tensor_model_parallel_size=2
  alike cpu card 3
fi
# An operand that the hardware would refuse: whose it is, where, what it needs.
if [ "$ranks" = 2 ]; then
  SIM_XPU_ALIGN=64 "$build/loongrun" recipe.yaml device=xpu \
    foundation.hidden_size=24 >out 2>err && fail 'odd rows are taken'
  grep -q 'operand 0 begins at 0x[0-9a-f]*, 32 bytes behind a multiple of 64' \
    err || fail 'where an operand is, and what it needs'
  grep -q 'of a multiple of 16 elements give that (hidden_size, ' err ||
    fail 'what helps'
  grep -q "in kernel .*_xpu, scope 'layers.0" err || fail 'whose operand it is'
fi
# Without BKCL it is told what does without.
if [ "$ranks" = 2 ]; then
  mkdir nobkcl
  cp "$build"/xpusim/* nobkcl && rm nobkcl/libbkcl.so
  LOONG_XPU_PATH=$PWD/nobkcl timeout -k 5 60 "$mpirun" --oversubscribe -n 2 \
    "$build/loongrun" recipe.yaml device=xpu >out 2>err
  grep -q 'comm.device_backend: staged does without it' err || fail 'no BKCL'
  grep -q "libbkcl.so was looked for in $PWD/nobkcl;" err ||
    fail 'where BKCL was looked for'
  # And what the host does in place of the device, is told.
  SIM_XPU_LACKS=swiglu LOONG_XPU_PATH=$PWD/nobkcl train staged device=xpu \
    comm.device_backend=staged 'train.host_ops=[swiglu]'
  alike cpu staged 3
  grep -q 'comm [0-9.]*%, host ops [0-9.]*%)' out || fail 'host ops of a step'
  grep -q 'train.host_ops took .* %.* swiglu .* s in 12 launches' err ||
    fail 'host ops of a run'
fi
