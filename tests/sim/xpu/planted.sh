#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mistakes that host code of an XPU can make, one at a time: the simulator takes
# the call for what such code would have called (SIM_XPU_PLANT=NAME, or NAME:N,
# the N-th time alone), and a test must fail. One that no test sees is an error
# here.
#   planted.sh BUILD_DIR
set -u
cd "$1" || exit 2
log=xpu_planted.log
bad=0 count=0

# passes TEST [NAME=VALUE ...]
passes() {
  local test=$1
  shift
  timeout 60 env "$@" "./test_$test" >"$log" 2>&1
}

# plant TEST BUG [NAME=VALUE ...]
plant() {
  local test=$1 bug=$2
  shift 2
  count=$((count + 1))
  if passes "$test" "$@" SIM_XPU_PLANT="$bug"; then
    echo "not seen: $bug by $test $*"
    bad=1
  elif ! grep -q "^planted: $bug" "$log"; then
    echo "not planted: $bug in $test"
    bad=1
  fi
}

# Without a bug the tests pass as they are called here.
for late in 0 0.3 1; do
  passes xpu_order SIM_XPU_PACE=$late || { cat "$log"; exit 1; }
done
passes xpu_op_head_linear SIM_XPU_PACE=0 || { cat "$log"; exit 1; }

late() { plant xpu_order "$1" SIM_XPU_PACE=0; }
late no_wait           # xpu_wait is forgotten,
late no_wait:2         # once alone,
late no_wait:6
late wrong_wait        # or waits for the default stream
late no_stream_wait    # one stream does not wait for the other,
late no_stream_wait:2
late wait_on_default   # or another one does
late stale_event       # an event of the record before
late early_record      # recorded before the work
late record_on_default
late event_early       # taken for done before it is
late copy_on_default   # without its stream
late copy_at_once      # before what is on its stream
late late_source       # ordinary memory is read when it is another's again
late default_stream    # kernels on no stream

now() { plant xpu_order "$1"; }
now swapped_arguments  # of a call that takes an event and a stream
now wrong_kind         # of a copy: the other direction,
now kind_of_cuda       # or another vendor's number
now wrong_enumerator   # one beside it
now swapped_sides      # dst and src
now short_copy         # a byte less
now short_fill
now no_set_device      # another device is current
now host_pointer       # to a kernel that copies
now beyond_end         # of what was allocated
now memory_kind
now host_flags
now free_inside        # not where memory begins
now leak               # memory, a stream, an event
now stream_leak
now event_leak

ops() { plant xpu_op_head_linear "$@"; }
ops host_operand       # to a kernel
ops operand_ends       # too soon
ops product_stream SIM_XPU_PACE=0
ops product_side       # transposed, or not
ops product_sum        # added to what was there, or not
ops product_type
ops product_rows       # too near to each other

# A copy in one piece, which the driver refuses.
count=$((count + 1))
if passes xpu_order LOONG_XPU_CHUNK=8388608; then
  echo "not seen: a long copy"
  bad=1
fi
echo "$count bugs"
exit $bad
