#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: stopping.sh BUILD SOURCE MPIRUN SECONDS CASE...: one request to end
# reaches a job of two ranks, whose steps last SECONDS, in different ways. What
# was done before the step is saved. The cases run beside each other.
set -u
build=$1
source=$2
mpirun=$3
seconds=$4
shift 4
place=$(mktemp -d)
trap 'kill_left; rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1

pids() { # DIRECTORY: of its loongrun processes
    local pid
    for pid in $(pgrep -x loongrun); do
        [[ "$(readlink "/proc/$pid/cwd")" != "$1"* ]] || echo "$pid"
    done
}

kill_left() { # when a case has failed
    local left
    left=$(pids "$place")
    [ -z "$left" ] || kill -9 $left
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
slow=
for step in 1 2 3 4; do
    slow="$slow {kind: slow, rank: 1, step: $step, seconds: $seconds},"
done
cat >recipe.yaml <<YAML
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 32,
    ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 64}
data: {seq_length: 64, train: [{path: $place/text}]}
train: {micro_batch_size: 1, global_batch_size: 2, train_iters: 5}
optimizer: {lr: 1e-3}
checkpoint: {load: auto, save: save, save_interval: 100}
log: {interval: 1, dir: logs}
device: cpu
fault: [$slow]
YAML

# ---- what a case is made of -------------------------------------------------

want() { # WHAT, then a command that must succeed
    "${@:2}" && return
    echo "FAILED: $name: $1"
    tail -n 12 out err log.jsonl 2>/dev/null
    exit 1
}

ranks=("$mpirun" --oversubscribe -n 2 "$build/loongrun" ../recipe.yaml)
supervised=("$build/loong-supervise" --log log.jsonl)

# start COMMAND...: until the second step has begun. A shell leaves INT ignored
# in what it starts beside itself.
start() {
    env --default-signal=INT "$@" >out 2>err &
    job=$!
    for _ in $(seq 300); do
        ! grep -q "rank 1, step 1: slow" err || return
        [ -e /proc/$job ] || break
        sleep 0.1
    done
    want "the second step has not begun" false
}

finish() { # CODE
    local got=0
    wait $job || got=$?
    want "exit $got, not $1" [ $got = "$1" ]
}

saved() { # STEP, or nothing: in the end
    local now
    for _ in $(seq 300); do
        [ -n "$(pids "$PWD")" ] || break
        sleep 0.1
    done
    want "processes are left: $(pids "$PWD")" [ -z "$(pids "$PWD")" ]
    now=$(cd save && echo step_*)
    want "saved is $now, not $1" [ "$now" = "$1" ]
}

logged() { # TEXT of the supervisor's one line
    want "$(wc -l <log.jsonl) attempts, not 1" [ "$(wc -l <log.jsonl)" = 1 ]
    want "no $1 in the log" grep -qF "$1" log.jsonl
}

# ---- the cases ---------------------------------------------------------------

# mpirun is gone after two seconds, its ranks are not.
case_mpirun_term() {
    start "${ranks[@]}"
    kill -TERM $job
    finish 1
    want "nothing is said" grep -q "asked to stop (Terminated): the step" err
    saved step_00000001
}

case_mpirun_int() {
    start "${ranks[@]}"
    kill -INT $job
    finish 1
    saved step_00000001
}

case_mpirun_kill() {
    start "${ranks[@]}"
    kill -KILL $job
    finish 137
    saved step_00000001
}

case_mpirun_usr2() {
    start "${ranks[@]}"
    kill -USR2 $job
    finish 75
    saved step_00000001
}

case_supervised_term() {
    start "${supervised[@]}" "${ranks[@]}"
    kill -TERM $job
    finish 75
    saved step_00000001
    logged '"exit_code":75'
    logged '"last_step":1,"saved_step":1'
}

case_supervised_int() {
    start "${supervised[@]}" "${ranks[@]}"
    kill -INT $job
    finish 75
    saved step_00000001
    logged '"exit_code":75'
}

# As a scheduler does that signals a whole control group.
case_everybody() {
    start "${supervised[@]}" "${ranks[@]}"
    kill -TERM $job $(pgrep -P $job) $(pids "$PWD")
    finish 75
    saved step_00000001
    logged '"because":"it was asked to end"'
}

case_supervisor_killed() {
    start "${supervised[@]}" "${ranks[@]}"
    kill -KILL $job
    finish 137
    saved step_00000001
}

case_supervised_twice() {
    start "${supervised[@]}" "${ranks[@]}"
    kill -INT $job
    sleep 0.3
    kill -INT $job
    finish 1
    saved 'step_*'
    logged '"because":"it was asked to end"'
}

# Whoever reads the output of one rank is gone as well.
case_pipe() {
    mkfifo reader
    env --default-signal=INT "$build/loongrun" ../recipe.yaml \
        "fault=[{kind: slow, step: 1, seconds: $seconds}]" >reader 2>err &
    job=$!
    exec 3<reader
    for _ in $(seq 300); do
        ! grep -q "rank 0, step 1: slow" err || break
        sleep 0.1
    done
    kill -INT $job
    exec 3<&-
    finish 75
    saved step_00000001
}

declare -A running
for name; do
    mkdir "$name"
    (
        trap - EXIT
        cd "$name" || exit 1
        export TMPDIR=$PWD
        "case_$name"
    ) >"$name.log" 2>&1 &
    running[$name]=$!
done
failures=0
for name; do
    wait "${running[$name]}" || failures=$((failures + 1))
    cat "$name.log"
done
echo "$# cases, $failures failures"
[ $failures = 0 ]
