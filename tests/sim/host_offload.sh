#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: host_offload.sh BUILD SOURCE MPIRUN EXTENSION: a device that an
# extension brings trains as the processor does, alone and beside it, and takes
# the processor's checkpoint.
set -u
build=$1
source=$2
mpirun=$3
extension=$4
. "$source/tests/in_place.sh"
. "$source/tests/sim/small_training.sh"

# train RANKS DIR ARGUMENTS...
train() {
  local ranks=$1 dir=$2 got=0
  shift 2
  timeout -k 5 60 "$mpirun" --oversubscribe -n "$ranks" "$build/loongrun" \
    recipe.yaml "extensions=[$extension]" "$@" log.dir="$dir" >out 2>err ||
    got=$?
  [ "$got" = 0 ] || fail "$*: exit $got: $(cat err)"
}

write_training "$build" "$source" 2
train 1 cpu device=cpu checkpoint.save=a checkpoint.save_interval=1 \
  checkpoint.keep_last=0
train 1 alone device=host_offload checkpoint.save=b
alike cpu alone 3
train 2 both 'devices=[host_offload:0, cpu:1]'
alike cpu both 3
