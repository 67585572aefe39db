#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: signals.sh BUILD SOURCE MPIRUN: signals to a job of two ranks, as a
# scheduler sends them: USR1 saves and goes on, USR2 (to mpirun) and TERM (to
# one parent) finish the step on all ranks, save, and end with 75.
set -eu
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill -9 $job 2>/dev/null; rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1

fail() {
    echo "$1"
    tail -n 30 out err
    exit 1
}

# within SECONDS COMMAND...: until it holds
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

has() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1"; }

start() { # DIRECTORY
    "$mpirun" --oversubscribe -n 2 "$build/loongrun" recipe.yaml \
        checkpoint.save="$1" >out 2>err &
    job=$!
    within 30 grep -q '^step 5/' out || fail "$1: no steps"
}

# stopped DIRECTORY: the job has ended with 75 at the step of its checkpoint
stopped() {
    local code=0 step
    wait $job || code=$?
    job=
    [ $code = 75 ] || fail "$1: exit $code, not 75"
    has err "loongrun: exit 75: stopped on request"
    step=$(sed -n 's/^stopped at step \([0-9]*\) .*/\1/p' out)
    [ -n "$step" ] || fail "$1: no step where it stopped"
    [ "$(cat "$1/latest")" = "$(printf 'step_%08d' "$step")" ] ||
        fail "$1: stopped at $step, saved $(cat "$1/latest")"
    # The whole of that step, of both ranks: it goes on behind it.
    { "$build/loong-ckpt" verify "$1" &&
        "$build/loong-ckpt" inspect "$1"; } >whole ||
        fail "$1: the checkpoint is not whole"
    has whole "step $step, saved by 2 ranks"
    has whole "metadata consumed_samples: $((4 * step))"
    "$mpirun" --oversubscribe -n 2 "$build/loongrun" recipe.yaml \
        checkpoint.save="$1" checkpoint.load=auto \
        train.train_iters=$((step + 2)) >out 2>err || fail "$1: no resume"
    has out "at step $step"
    has out "finished at step $((step + 2)) of $((step + 2))"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
device: cpu
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 32,
    ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 64}
data: {seq_length: 64, train: [{path: text}]}
train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 1000000}
optimizer: {lr: 1e-3}
log: {interval: 5}
comm: {timeout: 20s}
YAML

# USR1: saves, and steps follow; USR2 after it.
start one
kill -USR1 $job
within 20 test -e one/latest || fail "USR1 saved nothing"
saved=$((10#$(sed 's/step_//' one/latest)))
kill -0 $job || fail "USR1 ended the job"
grew() {
    [ "$(sed -n 's/^step \([0-9]*\)\/.*/\1/p' out | tail -n 1)" -gt "$1" ]
}
within 20 grew $((saved + 5)) || fail "USR1: no steps behind $saved"
[ $((10#$(sed 's/step_//' one/latest))) = $saved ] || fail "USR1: saved twice"
kill -USR2 $job
stopped one

# TERM to one of the parents, as when a scheduler signals single processes.
start two
kill -TERM "$(pgrep -P $job -x loongrun | tail -n 1)"
stopped two
# USR1 within a step of 400 micro-batches is about that step.
"$mpirun" --oversubscribe -n 2 "$build/loongrun" recipe.yaml \
    checkpoint.save=within train.global_batch_size=1600 log.interval=1 \
    >out 2>err &
job=$!
within 30 grep -q '^step 1/' out || fail "within: no steps"
sleep 0.2
kill -USR1 $job
within 30 test -e within/latest || fail "USR1 within a step saved nothing"
kill -USR2 $job
code=0
wait $job || code=$?
job=
[ $code = 75 ] || fail "within: exit $code, not 75"
# A step of 20001 micro-batches is given up: what is saved is the one before it.
long() { # DIRECTORY [KEY]
    exec "$mpirun" --oversubscribe -n 2 "$build/loongrun" recipe.yaml \
        log.interval=10 checkpoint.save="$1" train.global_batch_size=80004 \
        'train.rampup_batch_size=[4, 80000, 40]' "${@:2}"
}
(long before train.exit_interval=10) >out 2>err || [ $? = 75 ] ||
    fail "no ten steps"
long during >out 2>err &
job=$!
within 30 grep -q '^step 10/' out || fail "no steps before the long one"
sleep 1
kill -TERM "$(pgrep -P $job -x loongrun | tail -n 1)"
code=0
wait $job || code=$?
job=
[ $code = 75 ] || fail "in a step: exit $code, not 75"
has out "stopped at step 10 of 1000000"
{ "$build/loong-ckpt" verify during &&
    "$build/loong-ckpt" diff before/step_00000010 during/step_00000010; } \
    >whole 2>&1 || fail "in a step: $(cat whole)"
# The first one that a run goes on with likewise, which then has no loss.
long during checkpoint.load=auto >out 2>err &
job=$!
within 30 grep -q '^resumed from' out || fail "it does not go on"
sleep 1
kill -TERM "$(pgrep -P $job -x loongrun | tail -n 1)"
code=0
wait $job || code=$?
job=
[ $code = 75 ] || fail "in the first step: exit $code, not 75"
has out "stopped at step 10 of 1000000"
! grep -q '^stopped .*loss' out || fail "a loss of no step"
echo "USR1 at step $saved and on, USR2 and TERM: 75"
