#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: supervise.sh BUILD SOURCE MPIRUN CASE...: jobs of two ranks under
# loong-supervise, which mostly wait: the cases run beside each other. A job that
# was restarted must end with the checkpoint and the loss curve of one that was
# not, bit for bit.
set -u
build=$1
source=$2
mpirun=$3
shift 3
place=$(mktemp -d)
job=
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1
failures=0
checks=0

failed() {
    printf 'FAILED: %s: %s\n' "$name" "$1"
    tail -n 25 err log.jsonl 2>/dev/null
    failures=$((failures + 1))
}

want() { # WHAT, then a command that must succeed
    checks=$((checks + 1))
    "${@:2}" || failed "$1"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 2
    hidden_size: 64
    ffn_hidden_size: 128
    num_attention_heads: 4
    vocab_size: 257
    max_position_embeddings: 64
    position_embedding_type: rope
    normalization: RMSNorm
    activation: swiglu
    qk_layernorm: true
data: {seq_length: 64, train: [{path: ../text}]}
train: {micro_batch_size: 2, global_batch_size: 8, train_iters: 16}
optimizer: {lr: 1e-3, lr_warmup_iters: 4}
checkpoint: {load: auto, save_interval: 4}
log: {interval: 1}
device: cpu
YAML

# supervise CODE OPTIONS -- ARGUMENTS...: exit code of a job, 60 s at most
supervise() {
    local wanted=$1 got=0 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    rm -rf save logs log.jsonl
    timeout -k 5 90 "$build/loong-supervise" --backoff 0.2 --log log.jsonl \
        "${options[@]}" -- "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
        ../recipe.yaml checkpoint.save=save log.dir=logs "$@" >out 2>err ||
        got=$?
    want "exit $got, not $wanted" [ $got = "$wanted" ]
}

has() { # TEXT...: in what the job or the supervisor said
    local text
    for text; do
        want "no \"$text\"" grep -qF -- "$text" out err
    done
}

attempts() { want "$(wc -l <log.jsonl) attempts, not $1" \
    [ "$(wc -l <log.jsonl)" = "$1" ]; }

# figure ATTEMPT KEY: a value of the log
figure() { sed -n "$1s/.*\"$2\":\([^,}]*\).*/\1/p" log.jsonl; }

is() { # ATTEMPT KEY VALUE
    want "$2 of attempt $1 is $(figure "$1" "$2"), not $3" \
        [ "$(figure "$1" "$2")" = "$3" ]
}

curve() { # DIRECTORY: step, loss, gradient norm, learning rate of each step
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*"lr":\([^,]*\),.*/\1 \2 \3 \4/p' \
        "$1/metrics.jsonl"
}

# whole_run ARGUMENTS...: the same as a run that nothing happened to, which the
# first case that wants it makes.
whole_run() {
    local whole differs=0
    whole=../whole_$(cksum <<<"$*" | tr ' ' _)
    (
        flock 9
        [ -e "$whole.out" ] || "$mpirun" --oversubscribe -n 2 \
            "$build/loongrun" ../recipe.yaml checkpoint.save="$whole" \
            log.dir="$whole.logs" "$@" >"$whole.out" 2>&1
    ) 9>"$whole.lock" || failed "the run without faults: $(cat "$whole.out")"
    curve "$whole.logs" >whole_curve
    want "$(wc -l <whole_curve) steps, not 16" [ "$(wc -l <whole_curve)" = 16 ]
    curve logs >curve
    want "another loss curve: $(diff whole_curve curve)" \
        cmp -s whole_curve curve
    "$build/loong-ckpt" diff "$whole" save >diff 2>&1 || differs=$?
    want "other weights or moments: $(cat diff)" [ $differs = 0 ]
}

# restarted SECONDS ARGUMENTS...: one restart after 6 steps, detected within the
# time; the rest equals a run without faults
restarted() {
    local detect resume
    attempts 2
    is 1 decision '"restart"'
    is 1 last_step 6
    is 1 saved_step 4
    is 2 from_step 4
    is 2 steps_lost 2
    is 2 last_step 16
    detect=$(figure 1 seconds_to_detect)
    resume=$(figure 2 seconds_to_resume)
    want "$detect s to detect, more than $1" \
        awk "BEGIN { exit !($detect > 0 && $detect < $1) }"
    want "$resume s to resume" \
        awk "BEGIN { exit !($resume > 0.2 && $resume < 30) }"
    echo "$name: detected in $detect s, resumed in $resume s," \
        "$(figure 2 steps_lost) steps lost"
    whole_run "${@:2}"
}

fault() { printf 'fault=[{kind: %s, rank: 1, step: 6}]' "$1"; }

# A checkpoint is begun after step 4 and whole a little later: the two steps
# until the fault may be too quick for it.
sync=checkpoint.async=false

case_kill() {
    supervise 0 -- "$(fault kill)" $sync
    is 1 exit_code 4
    is 1 rank 1
    has "FAULT INJECTION (command line:1): kill on rank 1 at step 6" \
        "FAULT INJECTION (command line:1): rank 1, step 6: kill" \
        "lost: rank 1 was killed by signal 9" "not in this attempt any more" \
        "what the ranks of this machine did last:" \
        "is in all_reduce #" "'step header' of world (" "step_header.c:" \
        "resumed from save/step_00000004"
    restarted 30
}

case_crash() {
    supervise 0 -- "$(fault crash)" $sync
    has "lost: rank 1 was killed by signal 11"
    restarted 30
}

# Long before the time limit of a collective, which is 300 s here.
case_stop() {
    supervise 0 -- "$(fault stop)" $sync
    is 1 exit_code 4
    is 1 rank 1
    has "lost: rank 1 is stopped (SIGSTOP), rank 0 waits for it"
    restarted 30
}

case_hang() {
    supervise 0 -- "$(fault hang)" $sync
    is 1 exit_code 4
    is 1 rank 1
    has "lost: rank 1 hangs, rank 0 waits for it and it has done nothing for"
    restarted 30
}

case_exit() {
    supervise 0 -- "$(fault exit)" $sync
    is 1 exit_code 4
    is 1 rank 1
    has "did not come in" "rank 1 (pid " ", ended, step 6) finished "
    restarted 30
}

case_wrong_collective() {
    supervise 0 -- "$(fault wrong_collective)" $sync
    is 1 exit_code 4
    has "ranks of world do not call the same: rank 0 calls all_reduce" \
        "rank 1 calls barrier #" "'wrong' (" "fault.c:"
    restarted 30
}

case_io_error() {
    supervise 0 -- "$(fault io_error)" $sync
    is 1 exit_code 74
    has "step 6, rank 1: " "cannot read the samples (on request)"
    restarted 30
}

# Other layouts have other parts to save.
case_pipeline() {
    local layout=parallel.pipeline_model_parallel_size=2
    supervise 0 -- "$(fault kill)" $sync $layout
    has "lost: rank 1 was killed by signal 9" "'step header'"
    restarted 30 $layout
    supervise 2 -- 'fault=[{kind: nan_gradient, rank: 0, step: 6}]' $layout
    has "fault nan_gradient on rank 0, which has no loss"
}

case_tensor() {
    local layout=parallel.tensor_model_parallel_size=2
    supervise 0 -- "$(fault exit)" $sync $layout
    restarted 30 $layout
}

case_sharded() {
    local layout=parallel.data_parallel_sharding=optim_grads_params
    supervise 0 -- "$(fault crash)" $sync $layout
    restarted 30 $layout
}

# The newest checkpoint is damaged and named; the one before it serves.
case_corrupt() {
    supervise 0 -- $sync "fault=[{kind: corrupt_checkpoint, rank: 1, step: 8},
        {kind: kill, rank: 0, step: 10}]"
    attempts 2
    is 1 saved_step 8
    is 2 from_step 4
    is 2 steps_lost 6
    has "checkpoint save/step_00000008 is damaged, the one before it is tried" \
        "rank_00001.h5: checksum" "resumed from save/step_00000004 at step 4"
    whole_run
    # Named alone it is refused, and so is a directory without a whole one.
    local got=0
    for step in save/step_000000*; do
        printf XXXX | dd of="$step/rank_00000.h5" bs=1 seek=3000 \
            conv=notrunc status=none
    done
    "$build/loongrun" ../recipe.yaml checkpoint.save=save train.train_iters=17 \
        >out 2>err || got=$?
    want "exit $got, not 1" [ $got = 1 ]
    has "none of the 2 checkpoints in 'save' is whole"
}

# Nothing is gained by another attempt.
case_refused() {
    supervise 2 -- optimizer.lr=1e9
    attempts 1
    has "the command or the recipe is refused"
    supervise 2 -- checkpoint.load=null
    attempts 1
    has "checkpoint.load: found nothing, auto wanted"
    supervise 2 -- checkpoint.save_interval=0
    attempts 1
    has "both 0, one of them wanted"
    supervise 66 -- 'data.train=[{path: nowhere}]'
    attempts 1
    supervise 3 -- "$(fault nan_gradient)"
    attempts 1
    is 1 decision '"end"'
    has "gradient norm nan; first parameter with a gradient that is not" \
        "it would diverge again"
    supervise 2 -- "fault=[{kind: kill, rank: 2, step: 16},
        {kind: slow}, {kind: kill, step: 1, seconds: 3}]"
    attempts 1
    has "fault[0].rank: 2, there are ranks 0 to 1" \
        "fault[0].step: 16, train.train_iters 16 ends before it" \
        "fault[1].step: not set, every fault needs it" \
        "fault[2].seconds: has no effect on kill, only on slow"
}

# The same step fails each time: a pause, a longer one, then no more.
case_same() {
    supervise 4 --same 3 -- $sync \
        'fault=[{kind: kill, rank: 1, step: 6, attempts: 0}]'
    attempts 3
    is 1 backoff 0.2
    is 2 backoff 0.4
    is 3 decision '"end"'
    has "a rank was lost at step 6, 3 times the same"
    supervise 4 --restarts 1 --same 9 -- $sync \
        'fault=[{kind: kill, rank: 1, step: 1, attempts: 0}]'
    attempts 2
    has "1 restarts brought no new checkpoint"
}

# Two faults, each after a new checkpoint: no pause grows.
case_gain() {
    supervise 0 --restarts 1 -- $sync \
        'fault=[{kind: kill, rank: 1, step: 6, attempts: 1},
        {kind: kill, rank: 0, step: 10, attempts: 2}]'
    attempts 3
    is 1 backoff 0.2
    is 2 backoff 0.2
    whole_run
}

# Stopped on its own account: goes on at once.
case_interval() {
    supervise 0 -- $sync train.exit_interval=6
    attempts 3
    is 1 exit_code 75
    is 1 backoff 0
    whole_run
}

# A slow rank is waited for: nothing is restarted.
case_slow() {
    supervise 0 -- 'fault=[{kind: slow, rank: 1, step: 6, seconds: 2}]'
    attempts 1
    has "rank 1, step 6: slow"
    whole_run
}

# start ARGUMENTS...: a long job in the background, until its first checkpoint
launcher=("$mpirun" --oversubscribe -n 2)
start() {
    rm -rf save logs log.jsonl
    "$build/loong-supervise" --backoff 0.2 --log log.jsonl "${launcher[@]}" \
        "$build/loongrun" ../recipe.yaml \
        checkpoint.save=save log.dir=logs "$@" >out 2>err &
    job=$!
    for _ in $(seq 400); do
        [ ! -e save/latest ] || return
        sleep 0.05
    done
    failed "no checkpoint within 20 s"
}

finish() { # CODE
    local got=0
    wait $job || got=$?
    job=
    want "exit $got, not $1" [ $got = "$1" ]
}

nobody_left() {
    local pid
    for pid in $(pgrep -x loongrun); do
        [ "$(readlink /proc/$pid/cwd)" != "$PWD" ] || return 1
    done
}

# Asked to stop: saved, and not restarted.
case_asked() {
    start train.train_iters=1000000 checkpoint.save_interval=100
    kill -USR2 $job
    finish 75
    attempts 1
    has "it was asked to end" "stopped at step "
}

# One rank without a launcher: TERM reaches it, it saves and ends. A pause ends
# at a request, too.
case_alone() {
    local launcher=()
    start train.train_iters=1000000 checkpoint.save_interval=100
    kill -TERM $job
    finish 75
    attempts 1
    has "it was asked to end" "stopped at step "
    rm -rf save logs log.jsonl
    "$build/loong-supervise" --backoff 200 --log log.jsonl \
        "$build/loongrun" ../recipe.yaml checkpoint.save=save log.dir=logs \
        'fault=[{kind: crash, step: 6}]' >out 2>err &
    job=$!
    for _ in $(seq 200); do
        ! grep -q "restart in 200.0 s" err || break
        sleep 0.1
    done
    kill -INT $job
    finish 4
    has "restart in 200.0 s: a rank was lost" "asked to end while waiting"
}

# The supervisor is killed: the job ends, too.
case_orphaned() {
    start train.train_iters=1000000 checkpoint.save_interval=100
    kill -9 $job
    wait $job 2>/dev/null
    job=
    for _ in $(seq 150); do
        ! nobody_left || break
        sleep 0.1
    done
    rm -rf loong-job-*
}

# refuses CODE TEXT ARGUMENTS...: loong-supervise itself
refuses() {
    local code=$1 text=$2 got=0
    shift 2
    "$build/loong-supervise" "$@" >out 2>err || got=$?
    want "$*: exit $got, not $code" [ $got = "$code" ]
    has "$text"
}

case_options() {
    refuses 2 "no command given"
    refuses 2 "no command given" --restarts 3 --
    refuses 2 "--restarts: found many, a number from 0 to" --restarts many true
    refuses 2 "--same: found 1.5, a whole number wanted" --same 1.5 true
    refuses 2 "--backoff: found -1, a number from 0 to 300" --backoff -1 true
    refuses 2 "--backup: unknown option, or its value" --backup 1 true
    refuses 2 "--log: unknown option, or its value is missing" --log
    refuses 73 "cannot write 'no/where': No such file" --log no/where true
    refuses 127 "cannot run 'no_such_command': No such file" no_such_command
    refuses 126 "cannot run '../recipe.yaml': Permission denied" ../recipe.yaml
    refuses 0 "finished" --log log.jsonl -- true
    rm -f loong-supervise.jsonl
    refuses 0 "usage: loong-supervise" --help
}

# The launcher is killed: its ranks are cleared up before the next attempt.
case_launcher() {
    start train.train_iters=1500 checkpoint.save_interval=100
    kill -9 "$(pgrep -P $job)"
    finish 0
    attempts 2
    is 1 exit_code 137
    is 2 last_step 1500
}

# one NAME: a case in a directory of its own
one() {
    name=$1
    mkdir "$name" && cd "$name" || exit 1
    export TMPDIR=$PWD
    trap '[ -z "$job" ] || kill -9 $job 2>/dev/null' EXIT
    : >out
    : >err
    "case_$name"
    want "processes are left" nobody_left
    want "files are left: $(ls -d loong-job-* 2>/dev/null)" \
        [ -z "$(ls -d loong-job-* 2>/dev/null)" ]
    echo "$name: $checks checks, $failures failures"
    [ $failures = 0 ]
}

cases=()
for name; do
    one "$name" &
    cases+=($!)
done
bad=0
for case in "${cases[@]}"; do
    wait "$case" || bad=1
done
exit $bad
