#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: loongrun_faults.sh BUILD SOURCE MPIRUN: bad input and faults on two
# ranks, as a person meets them: message, exit code, and an end within 30 s.
# The table of docs/faults.md names the cases by the comments here.
set -u
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
job=
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1
failures=0
cases=0

failed() {
    printf 'FAILED: %s\n' "$1"
    sed '/^-----/,$ d' err | tail -n 20
    failures=$((failures + 1))
}

# check CODE GOT WHAT TEXT...: exit code, texts in what was printed, no noise
check() {
    local code=$1 got=$2 what=$3 text
    shift 3
    cases=$((cases + 1))
    [ "$got" = "$code" ] || failed "$what: exit $got, not $code"
    for text in "$@"; do
        grep -qF -- "$text" out err || failed "$what: no \"$text\""
    done
    ! grep -qE 'received signal|has failed before|do not call the same|==' \
        err || failed "$what: noise"
}

# two CODE TEXT[|TEXT...] ARGUMENTS...: two ranks with recipe.yaml
two() {
    local code=$1 texts got=0
    IFS='|' read -r -a texts <<<"$2"
    shift 2
    timeout -k 5 30 "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
        recipe.yaml "$@" >out 2>err || got=$?
    check "$code" $got "$*" "${texts[@]}"
}

damage() { # FILE OFFSET BYTES: overwrites in the middle
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

index() { # PREFIX FILES...
    local prefix=$1
    shift
    "$build/loong-data" index --tokenizer bytes --append-eod --quiet \
        --suffixes .md --output-prefix "$prefix" "$@" >/dev/null
}

index text "$source/docs"
cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 1
    hidden_size: 32
    ffn_hidden_size: 64
    num_attention_heads: 2
    vocab_size: 257
    max_position_embeddings: 64
    position_embedding_type: rope
    normalization: RMSNorm
    activation: swiglu
    qk_layernorm: true
data: {seq_length: 64, train: [{path: text}]}
train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 4}
optimizer: {lr: 1e-3}
device: cpu
comm: {timeout: 15s}
YAML

# start NAME ARGUMENTS...: a long job with a checkpoint after each step
start() {
    local name=$1
    shift
    rm -rf "$name"
    timeout -k 5 60 "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
        recipe.yaml checkpoint.save="$name" checkpoint.save_interval=1 \
        train.train_iters=1000000 "$@" >out 2>err &
    job=$!
    for _ in $(seq 200); do
        [ ! -e "$name/latest" ] || return
        sleep 0.05
    done
    failed "$name: no checkpoint within 10 s"
}

worker() { # RANK: below mpirun a stub starts the parent, and that its worker
    local stubs
    stubs=$(pgrep -P "$(pgrep -P $job)" -x loongrun)
    pgrep -P "$(pgrep -P "$(sed -n "$(($1 + 1))p" <<<"$stubs")")"
}

finish() { # CODE WHAT TEXT...: the end of the job, within 30 s
    local code=$1 got=0 began=$SECONDS
    shift
    wait $job || got=$?
    job=
    check "$code" $got "$@"
    [ $((SECONDS - began)) -le 30 ] || failed "$1: $((SECONDS - began)) s"
}

# Recipes, and text that is trained on.
recipes_and_data() {
    # unknown key, wrong type, out of range: all told together, with the place
    sed 's/train_iters: 4/train_iters: many, micro_batchsize: 1/' recipe.yaml \
        >wrong.yaml
    got=0
    "$mpirun" --oversubscribe -n 2 "$build/loongrun" wrong.yaml log.intervall=3 \
        optimizer.lr=1e9 >out 2>err || got=$?
    check 2 $got "wrong recipe" "the recipe: 4 problems" \
        "unknown key log.intervall; did you mean log.interval?" \
        "wrong.yaml:15: unknown key train.micro_batchsize; did you mean" \
        "wrong.yaml:15: train.train_iters: found many, a whole number" \
        "optimizer.lr: found 1e9, allowed 0 to 1000"
    [ "$(grep -c 'wrong recipe' err)" = 1 ] || failed "told by every rank"

    # indivisible sizes
    two 2 "5 is no multiple of 4 (train.micro_batch_size 2 x 2 data-parallel" \
        train.global_batch_size=5
    two 2 "num_attention_heads 3 does not divide hidden_size 32" \
        model.foundation.num_attention_heads=3
    two 2 "2 ranks are no multiple of" parallel.tensor_model_parallel_size=3

    # missing file
    two 66 "cannot open 'nowhere.idx': No such file" \
        'data.train=[{path: nowhere}]'
    two 66 "'nowhere/config.json' does not exist" init.from_hf=nowhere

    # truncated or corrupt .bin and .idx, empty data set, ids above the vocabulary
    cp text.idx bad.idx
    head -c 100 text.bin >bad.bin
    two 1 "'bad.bin' has 100 bytes, its index promises" 'data.train=[{path: bad}]'
    cp text.bin bad.bin
    head -c 60 text.idx >bad.idx
    two 1 "'bad.idx' is truncated: 60 bytes" 'data.train=[{path: bad}]'
    cp text.idx bad.idx
    damage bad.idx 0 XX
    two 1 "'bad.idx' is not a Megatron index" 'data.train=[{path: bad}]'
    cp text.idx bad.idx
    damage bad.idx 36 '\377\377\377\377'
    two 1 "'bad.idx': sequence 0 has length" 'data.train=[{path: bad}]'
    zeros='\0\0\0\0\0\0\0'
    printf "MMIDIDX\0\0\1$zeros\10\0$zeros\1$zeros\0$zeros" >empty.idx
    : >empty.bin
    two 1 "data 'train': 'empty' is empty: 0 documents, 0 tokens" \
        'data.train=[{path: empty}]'
    two 1 "'text.bin', document |: value |, allowed is 0 to 63|rank 0" \
        model.foundation.vocab_size=64

    # more ranks than samples
    head -c 150 "$source/LICENSE" >few.md
    index few few.md
    two 2 "16 samples are needed, there are 2 until 'few' is used up" \
        'data.train=[{path: few, max_epochs: 1}]'
    two 0 "a step of 4 samples takes some of the 2 there are more than once" \
        'data.train=[{path: few}]'
    head -c 40 few.md >less.md
    index less less.md
    head -c 100 few.md >one.md
    index one one.md
    two 2 "2 data-parallel ranks share 1 samples: use fewer ranks, more data" \
        'data.train=[{path: one}]'
    two 1 "'less' has 41 tokens in 1 of 1 documents, one sample of seq_length 64" \
        'data.train=[{path: less}]'

}

# Ranks that are unlike, limits of the system.
ranks_and_limits() {
    # different recipes
    sed 's/1e-3/2e-3/' recipe.yaml >other.yaml
    got=0
    timeout 30 "$mpirun" --oversubscribe -n 1 "$build/loongrun" recipe.yaml : \
        -n 1 "$build/loongrun" other.yaml >out 2>err || got=$?
    check 2 $got "two recipes" "rank 1 runs another recipe than rank 0"

    # one rank fails to read: the other says why
    mkdir -p here there
    cp text.* here
    got=0
    timeout 30 "$mpirun" --oversubscribe \
        -n 1 -wdir "$PWD/here" "$build/loongrun" "$PWD/recipe.yaml" : \
        -n 1 -wdir "$PWD/there" "$build/loongrun" "$PWD/recipe.yaml" \
        >out 2>err || got=$?
    check 66 $got "one rank without data" "rank 1 cannot start" \
        "cannot open 'text.idx': No such file"

    # a limit of file sizes, a full disk: shared memory fits, checkpoints do not
    big="model.foundation.hidden_size=512 train.train_iters=1 device=cpu"
    got=0
    timeout 30 "$mpirun" --oversubscribe -n 2 bash -c "ulimit -f 7000
        exec '$build/loongrun' recipe.yaml $big checkpoint.save=full" \
        >out 2>err || got=$?
    check 74 $got "size limit" "cannot save step 1 to 'full': rank " \
        "File too large"
    [ ! -e full/latest ] || failed "size limit: a latest was left"
    mkdir disk
    if unshare -rm mount -t tmpfs tmpfs disk 2>/dev/null; then
        got=0
        unshare -rm bash -c "mount -t tmpfs -o size=4m tmpfs disk
            timeout 30 '$mpirun' --oversubscribe -n 2 '$build/loongrun' \
            recipe.yaml $big checkpoint.save=disk/full" >out 2>err || got=$?
        check 74 $got "full disk" "cannot save step 1 to 'disk/full': rank " \
            "No space left on device"
    else
        echo "no user namespaces here: full disk only as a size limit"
    fi

    # several singletons by mistake
    for launcher in "srun:SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2:srun --mpi=pmix" \
        "torchrun:RANK=0 WORLD_SIZE=2 LOCAL_RANK=0:start it with mpirun" \
        "MPICH:PMI_RANK=0 PMI_SIZE=2:must be built with the MPI"; do
        IFS=: read -r name variables text <<<"$launcher"
        got=0
        env $variables "$build/loongrun" recipe.yaml >out 2>err || got=$?
        check 2 $got "$name" "$name started 2 processes, but each is a job" "$text"
    done
}

# Models, tokenizers and checkpoints.
files() {
    # truncated or corrupt safetensors
    two 0 "exported as" checkpoint.save=whole export.hf=hf
    two 0 "finished at step 4" init.from_hf=hf
    cp -r hf bad_hf
    truncate -s 1000 bad_hf/model.safetensors
    two 1 "bad_hf/model.safetensors: the header says it has" init.from_hf=bad_hf
    cp hf/model.safetensors bad_hf
    truncate -s -64 bad_hf/model.safetensors
    two 1 "bad_hf/model.safetensors: " init.from_hf=bad_hf
    cp hf/model.safetensors bad_hf
    damage bad_hf/model.safetensors 2 '\377\377\377\377\377'
    two 1 "bytes, at most 100000000 are allowed" init.from_hf=bad_hf
    printf '{\n"a": ' >bad_hf/config.json
    two 1 "bad_hf/config.json: line 2, column" init.from_hf=bad_hf

    # truncated tokenizer.json; one with more ids than the model
    printf '{"version": "1.0", "model":\n{"type": "BPE", ' >bad.json
    two 1 "bad.json: line 2, column|wanted by data.tokenizer" \
        data.tokenizer=bad.json
    two 2 "the tokenizer has 257 ids, the model knows 256" data.tokenizer=bytes \
        model.foundation.vocab_size=256

    # truncated or corrupt HDF5: rank 0 or rank 1 alone may be who reads it
    for file in rank_00000.h5 rank_00001.h5 index.h5; do
        rm -rf bad
        cp -r whole bad
        damage bad/step_00000004/$file 2000 '\125\252\125\252'
        two 1 "bad/step_00000004: 1 problem|$file: checksum" \
            checkpoint.load=bad train.train_iters=5
        truncate -s 300 bad/step_00000004/$file
        two 1 "$file has 300 bytes instead of" \
            checkpoint.load=bad train.train_iters=5
    done
    truncate -s 300 bad/step_00000004/checkpoint.json
    two 1 "checkpoint.json: no checksum at the end: truncated or changed" \
        checkpoint.load=bad train.train_iters=5

}

# What happens to a job that runs.
faults() {
    # kill -9 during a save: the checkpoint before it still loads
    for try in $(seq 10); do
        start killed
        for _ in $(seq 1000); do
            compgen -G 'killed/.tmp_step_*' >/dev/null && break
        done
        kill -9 $(worker 0) $(worker 1)
        finish 4 "kill -9" "lost: rank " "was killed by signal 9"
        compgen -G 'killed/.tmp_step_*' >/dev/null && break
    done
    compgen -G 'killed/.tmp_step_*' >/dev/null || failed "no save was met"
    last=$(cat killed/latest)
    two 0 "resumed from killed/$last" checkpoint.save=killed checkpoint.load=auto \
        train.train_iters=$((10#${last#step_} + 2))
    ! compgen -G 'killed/.tmp_step_*' >/dev/null || failed "a half save was left"

    # a data set that is truncated while it is read
    cp text.idx cut.idx && cp text.bin cut.bin
    start cutting "data.train=[{path: cut}]"
    : >cut.bin
    finish 4 "truncated while training" "/cut.bin' could not be read where it is" \
        "truncated while in use" "was killed by signal 7"

    # one rank dies, is stopped, cannot read, has a gradient that is no number
    two 4 "lost: rank 1 was killed by signal 9|, step 2) " \
        'fault=[{kind: kill, rank: 1, step: 2}]'
    two 4 "1 of 2 ranks did not come in 4.0 s|rank 1 (pid |, step |is stopped (SIG" \
        comm.timeout=4s 'fault=[{kind: stop, rank: 1, step: 2}]'
    two 74 "step 2, rank 1: |cannot read the samples (on request)" \
        'fault=[{kind: io_error, rank: 1, step: 2}]'
    two 3 "gradient norm nan; first parameter with a gradient|train.on_nan is stop" \
        'fault=[{kind: nan_gradient, rank: 1, step: 2}]'
    two 0 "the step is not applied|finished at step 4 of 4" train.on_nan=skip \
        'fault=[{kind: nan_gradient, rank: 1, step: 2}]'
}

# lane NAME: of cases one after the other, in a directory of their own
lane() {
    mkdir "$1" && cd "$1" || exit 1
    trap '[ -z "$job" ] || kill -9 $job 2>/dev/null' EXIT
    cp ../text.* ../recipe.yaml .
    "$1"
    echo "$1: $cases cases, $failures failures"
    [ $failures = 0 ]
}

# A job waits more than it works: the lanes run beside each other.
lanes=()
for name in recipes_and_data ranks_and_limits files faults; do
    lane $name &
    lanes+=($!)
done
bad=0
for lane in "${lanes[@]}"; do
    wait "$lane" || bad=1
done
exit $bad
