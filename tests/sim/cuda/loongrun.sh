#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: loongrun.sh BUILD SOURCE MPIRUN [loongrun]: two processes with a
# simulated device each, as a person starts them: the losses of the processor, a
# rank that is killed, resumed on the processor, more ranks than devices.
set -u
build=$1
source=$2
mpirun=$3
real=${4:-} # where it is built with CUDA
. "$source/tests/in_place.sh"
. "$source/tests/sim/small_training.sh"

# two CODE ARGUMENTS...
two() {
    local code=$1 got=0
    shift
    timeout -k 5 100 "$mpirun" --oversubscribe -n 2 "$build/loongrun_cudasim" \
        recipe.yaml "$@" >out 2>err || got=$?
    [ "$got" = "$code" ] || fail "$*: exit $got, not $code"
    ! grep -q "^cudasim:" err || fail "$*: what the device says"
}

write_training "$build" "$source" 1
echo 'checkpoint: {save_interval: 1, async: false}' >>recipe.yaml
export CUDASIM_DEVICES=2

two 0 device=cpu checkpoint.save=cpu log.dir=cpu_log
two 0 device=cuda checkpoint.save=cuda log.dir=cuda_log
alike cpu_log cuda_log 3

# killed between two steps, of graphs: the checkpoint of the first ones goes on
# elsewhere
two 4 device=cuda train.cuda_graph_impl=local log.interval=9 \
    checkpoint.save=killed 'fault=[{kind: kill, rank: 1, step: 2}]'
grep -q 'rank 1' err || fail 'the message does not name rank 1'
two 0 device=cpu checkpoint.save=killed log.dir=killed_log \
    checkpoint.load=auto 'resume.override=[device,fault,log]'
alike cpu_log killed_log 1

# what a device lacks is a wrong recipe for it
CUDASIM_NAME=P800 two 2 device=cuda checkpoint.save=few
grep -q 'cuda:0: P800 is a Kunlun XPU' err || fail 'a device of another kind'
two 2 device=cuda precision.params_dtype=fp64 checkpoint.save=few
grep -q 'no kernel of device cuda for ' err || fail 'a kernel that there is not'

CUDASIM_DEVICES=1 two 2 device=cuda checkpoint.save=few
grep -q '2 ranks of this machine came to cuda:0' err ||
    fail 'more ranks than devices'

# one rank on the processor, one on a device
got=0
timeout -k 5 100 "$mpirun" --oversubscribe \
    -n 1 "$build/loongrun_cudasim" recipe.yaml device=cpu checkpoint.save=kinds : \
    -n 1 "$build/loongrun_cudasim" recipe.yaml device=cuda checkpoint.save=kinds \
    >out 2>err || got=$?
[ "$got" = 2 ] || fail "devices of two kinds: exit $got, not 2"
grep -q 'rank 0 runs on cpu, rank 1 on cuda: all ranks of a job' err ||
    fail 'devices of two kinds'

# asked for: the losses of the processor; the files of its checkpoints, which a
# job of one kind resumes; a device that dies
for order in 'cuda:0, cpu:1' 'cpu:0, cuda:1-'; do
    rm -rf mixed mixed_log
    two 0 "devices=[$order]" checkpoint.save=mixed log.dir=mixed_log
    alike cpu_log mixed_log 3
    grep -q '"comm_share"' mixed_log/metrics.jsonl ||
        fail 'waiting for ranks of another kind'
done
[ "$(cd mixed && find . -type f | sort)" = \
    "$(cd cpu && find . -type f | sort)" ] || fail 'files of a checkpoint'
two 0 device=cpu checkpoint.save=cpu2 checkpoint.load=mixed log.dir=cpu2_log \
    train.train_iters=4 'resume.override=[device,devices,train,log]'
two 0 device=cpu checkpoint.save=cpu3 checkpoint.load=cpu log.dir=cpu3_log \
    train.train_iters=4 'resume.override=[device,devices,train,log]'
alike cpu2_log cpu3_log 1
for rank in 0 1; do
    begin=$SECONDS
    two 4 'devices=[cuda:0, cpu:1]' checkpoint.save=killed$rank log.interval=9 \
        "fault=[{kind: kill, rank: $rank, step: 2}]"
    grep -q "rank $rank" err || fail "the message does not name rank $rank"
    [ $((SECONDS - begin)) -lt 30 ] || fail "a killed rank: $SECONDS s"
done
# a device that hangs while calls are under way: giving back what it has would
# wait for it for ever
begin=$SECONDS
CUDASIM_HANG_FILE=hung/latest two 4 'devices=[cuda:0, cpu:1]' \
    checkpoint.save=hung log.interval=9 comm.timeout=5s comm.overlap_work=0
grep -q 'rank 0 has waited .* for its device' err || fail 'a device that hangs'
[ $((SECONDS - begin)) -lt 30 ] || fail "a hanging device: $SECONDS s"
# one rank alone, whom nobody else waits for: launch by launch, and in graphs
for graphs in none local; do
    got=0
    CUDASIM_HANG_FILE=alone_$graphs/latest timeout -k 5 60 \
        "$build/loongrun_cudasim" recipe.yaml device=cuda \
        checkpoint.save="alone_$graphs" train.train_iters=9 \
        train.cuda_graph_impl=$graphs comm.heartbeat_timeout=1s >out 2>err ||
        got=$?
    [ "$got" = 1 ] || fail "a device that hangs alone, $graphs: exit $got"
    grep -q 'cuda:0: hangs: nothing that was launched has ended for 1' err ||
        fail "a device that hangs alone, $graphs"
done

# planned, with and without the devices
for exe in loongrun_cudasim $real; do
    "$build/$exe" --dry-run --ranks 4 recipe.yaml checkpoint.save=no \
        'devices=[cpu:0-1, cuda:2-]' model.foundation.num_layers=2 \
        parallel.pipeline_model_parallel_size=2 >out 2>err || fail "a plan, $exe"
    grep -q 'devices: cpu 0-1, cuda 2-3; between kinds through host memory' out ||
        fail "who has what, $exe"
    grep -q 'pinned for what goes through host memory: .* on rank 2' out ||
        fail "pinned memory, $exe"
    grep -q 'no time of a step is predicted' out || fail "no time, $exe"
done

# refused by name
two 2 'devices=[cuda:0]' checkpoint.save=no
grep -q 'devices (.*): rank 1 of 2 has no device' err || fail 'no device'
two 2 'devices=[cuda:0, cpu:0-1]' checkpoint.save=no
grep -q 'rank 0 of 2 stands there twice' err || fail 'twice'
two 2 'devices=[cuda:0-1, gpu:2]' checkpoint.save=no
grep -q "devices\[1\]: found 'gpu:2' (.*), wanted a kind and its ranks" err ||
    fail 'an unknown kind'
two 2 'devices=[cuda:0, cpu:1-2]' checkpoint.save=no
grep -q 'devices\[1\]: cpu:1-2 (.*), but the ranks of this job are 0 to 1' err ||
    fail 'too many ranks'
two 2 'devices=[cuda:0, cpu:1]' device=cpu checkpoint.save=no
grep -q 'device and devices are both set' err || fail 'both keys'
two 2 'devices=[cuda:0, cpu:1]' precision.params_dtype=auto checkpoint.save=no
grep -q 'precision.params_dtype is auto' err || fail 'a type for each rank'
