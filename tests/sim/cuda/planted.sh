#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: planted.sh BUILD [all]: bugs planted in kernels and in host code as they
# are (plant.cc, tests/ops/op_device.c). Of each a test must see that something
# is wrong; that the tests pass without is ctest's. A wait is one of the engine's
# between streams, by its number among those that order something; a launch
# one of NCCL's threads, whose end the engine would not wait for. all: the slow
# ones too.
set -u
build=$1
all=${2:-}
cd "$build" || exit 2
ulimit -c 0
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
count=0 missed=0

# caught TEST KIND WHERE: a barrier left out may harm in some orders of the
# threads alone, so in one of a few.
caught() {
  local test=$1 kind=$2 where=$3 seed variable=CUDASIM_PLANT
  [ "$kind" != stride ] || variable=OP_PLANT_STRIDE
  [ "$kind" = stride ] || where="$kind $where"
  count=$((count + 1))
  for seed in 1 2 3 4; do
    local got=0
    { env "$variable=$where" CUDASIM_SEED=$seed CMOCKA_TEST_ABORT=1 \
      timeout 120 "./test_$test" > "$place/out" 2>&1; } 2> /dev/null || got=$?
    if ! grep -q 'planted in' "$place/out"; then
      echo "NOT MET: $variable='$where' by test_$test"
      missed=$((missed + 1))
      return
    fi
    [ $got = 0 ] || {
      echo "caught: $where ($test, seed $seed)"
      return
    }
  done
  echo "MISSED: $variable='$where' by test_$test"
  missed=$((missed + 1))
}

while read -r when test kind where; do
  case $when in '' | \#*) continue ;; esac
  [ "$when" = every ] || [ "$all" = all ] || continue
  caught "$test" "$kind" "$where"
done <<'LIST'
every cuda_op_moe barrier count_chunk 1
long cuda_op_moe block count_chunk
long cuda_op_moe barrier place_chunks 1
every cuda_op_moe block place_chunks
every cuda_op_optimizer block update_kernel
every cuda_op_optimizer barrier sum_kernel 1
every cuda_op_rms_scale block squares_kernel
every cuda_op_router block route
long cuda_op_moe block place_slots
every cuda_op_moe block multiply_groups
every cuda_op_moe barrier multiply_groups 5
every cuda_op_moe barrier multiply_groups_wg 7
long cuda_op_moe block weigh_slots
every cuda_dispatch block count_window
every cuda_op_moe_rows barrier count_window 1
every cuda_op_pointwise block merge_heads
every cuda_op_attention sync forward_rows 1
every cuda_dispatch block count_routes
every cuda_dispatch block place_routes
every cuda_op_attention block find_spans
every cuda_op_attention block forward_tiles
every cuda_op_attention barrier forward_tiles 1
every cuda_op_attention barrier forward_tiles 2
every cuda_op_attention block forward_rows
every cuda_op_cross_entropy block softmax_kernel
every cuda_op_pointwise block norm_forward
every cuda_op_pointwise block add_pieces
every cuda_op_pointwise stride rmsnorm 0
every cuda_op_attention stride attention 0
every cuda_layouts wait 7
every cuda_layouts wait 5
every cuda_layouts launch 2
long cuda_op_attention block query_tiles
long cuda_op_attention barrier query_tiles 2
long cuda_op_attention block key_tiles
long cuda_op_attention barrier key_tiles 2
long cuda_op_attention block query_rows
long cuda_op_attention block key_rows
long cuda_op_attention block sum_deltas
long cuda_cudnn block find_begins
long cuda_cudnn block turn_lse
long cuda_op_moe block place_experts
long cuda_op_moe barrier multiply_groups 4
long cuda_op_moe barrier multiply_groups_wg 5
long cuda_op_moe block multiply_groups_wg
long cuda_op_moe barrier multiply_groups 7
long cuda_op_router block keep_slots
long cuda_dispatch block sum_routes
long cuda_dispatch barrier count_routes 1
long cuda_op_moe_rows block sum_window
long cuda_dispatch barrier sum_window 1
long cuda_op_moe_rows block keep_window
long cuda_op_moe_rows barrier keep_window 1
long cuda_op_optimizer block sum_kernel
long cuda_op_optimizer barrier sum_kernel 2
long cuda_op_pointwise block map_kernel
long cuda_op_pointwise barrier norm_forward 2
long cuda_op_pointwise barrier norm_forward 4
long cuda_op_pointwise stride swiglu 0
long cuda_op_pointwise stride add 0
long cuda_op_pointwise stride rope 0
long cuda_op_rms_scale barrier squares_kernel 2
long cuda_op_rms_scale block scale_grad
long cuda_op_rms_scale barrier scale_grad 1
long cuda_op_rms_scale barrier scale_grad 2
long cuda_op_cross_entropy barrier softmax_kernel 2
long cuda_op_linear block finish_kernel
long cuda_layouts wait 1
long cuda_layouts wait 3
long cuda_layouts wait 10
long cuda_layouts wait 30
long cuda_layouts wait 80
long cuda_layouts launch 20
long cuda_edges wait 40
long cuda_edges wait 60
long cuda_edges wait 80
long cuda_edges wait 100
long cuda_edges wait 130
long cuda_edges wait 150
long cuda_edges wait 180
long cuda_edges wait 210
long cuda_edges wait 280
long cuda_nccl launch 5
LIST
echo "$count planted, $missed missed"
[ $missed = 0 ]
