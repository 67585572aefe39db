#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: loongrun.sh BUILD SOURCE: loongrun as a person meets it: signals, exit
# codes, messages told once, no bar in a file.
set -eu
build=$1
source=$2
place=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1

fail() {
    echo "$1"
    tail -n 30 "$place"/out "$place"/err
    exit 1
}

# run CODE ARGUMENTS...: the exit code must be this one
run() {
    local wanted=$1 code=0
    shift
    "$build/loongrun" recipe.yaml "$@" >out 2>err || code=$?
    [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
}

has() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1"; }
hasnt() { ! grep -qF -- "$2" "$1" || fail "\"$2\" in $1"; }

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
name: tiny
device: cpu
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
data:
  seq_length: 64
  tokenizer: bytes
  train: [{path: text}]
  validation: [{name: docs, path: text}]
train: {micro_batch_size: 2, global_batch_size: 2, train_iters: 1000000}
optimizer: {lr: 1e-3}
eval: {iters: 2, sample: {prompts: ["The "], max_new_tokens: 4, top_k: 5}}
checkpoint: {save: save}
log: {interval: 1000, dir: logs}
comm: {backend: self, timeout: 1m}
YAML

# A layout without its ranks: planned, drawn, refused with the nearest ones.
run 2 --ranks 4
has err "--ranks is for --check, --dry-run and --explain; mpirun -n 4 starts"
run 2 --dry-run --ranks none
has err "--ranks none: 1 to 1048576 allowed"
run 0 --dry-run --ranks 2 +parallel.tensor_model_parallel_size=2 \
    --schedule-plot step.svg
has out "memory by stage, of its largest rank:"
has out "timeline of a step: step.svg"
has step.svg "</svg>"
run 2 --dry-run --ranks 3
has err "train.global_batch_size: 2 is no multiple of 6"
has err "possible on 2 ranks:"
has err "    train.micro_batch_size=1   (data parallel 2)"
run 73 --dry-run --schedule-plot none/step.svg
has err "cannot create 'none/step.svg"
run 2 --profile device=cuda
has err "--profile wants a FILE, found device=cuda"

# The ranks of a mixture of experts, by how they share these.
run 0 --dry-run --ranks 4 model.foundation.family=qwen3_moe \
    +model.foundation.num_experts=8 +model.foundation.moe_router_topk=2 \
    +model.foundation.moe_ffn_hidden_size=16 \
    +parallel.expert_model_parallel_size=2 train.global_batch_size=8
has out "pipeline 1 (one_stage) (for experts: expert 2 x tensor 1 x data 2), 1"

# Stopped without a place for checkpoints: nothing says that one was saved.
code=0
"$build/loongrun" recipe.yaml checkpoint.save=null log.dir=unsaved \
    >out 2>err &
pid=$!
for i in $(seq 100); do
    [ -e unsaved/recipe.yaml ] && break
    sleep 0.1
done
sleep 0.3
kill -TERM $pid
wait $pid || code=$?
pid=
[ $code = 75 ] || fail "TERM without checkpoint.save: exit $code, not 75"
has err "loongrun: exit 75: stopped on request"
grep -qF "nothing is kept: checkpoint.save is not set" out err || fail "kept?"
hasnt err "saved"
hasnt out "saved"

# USR1 saves and goes on; TERM saves and ends with 75; auto goes on there.
code=0
"$build/loongrun" recipe.yaml >out 2>err &
pid=$!
for i in $(seq 100); do
    [ -e logs/recipe.yaml ] && break
    sleep 0.1
done
sleep 0.3
kill -USR1 $pid
for i in $(seq 100); do
    [ -e save/latest ] && break
    sleep 0.1
done
[ -e save/latest ] || fail "USR1 saved nothing"
kill -0 $pid || fail "USR1 ended the run"
# A second run of the same recipe is kept out, an evaluation is not.
code2=0
"$build/loongrun" recipe.yaml checkpoint.load=auto >out2 2>err2 || code2=$?
[ $code2 = 2 ] || fail "a second run ended with $code2, not 2"
has err2 "another run writes into save (process "
"$build/loongrun" eval recipe.yaml checkpoint.load=auto >out2 2>err2 ||
    fail "eval beside a run: $(cat err2)"
has out2 "| eval docs | loss "
has out2 "sample | The "
# An evaluation wants no data to train on, nor a set when there are prompts.
loss=$(grep -o "eval docs | loss [0-9.]*" out2)
"$build/loongrun" eval recipe.yaml checkpoint.load=auto ~data.train \
    >out2 2>err2 || fail "eval without data.train: $(cat err2)"
has out2 "$loss"
"$build/loongrun" eval recipe.yaml checkpoint.load=auto ~data.train \
    ~data.validation >out2 2>err2 || fail "eval of prompts: $(cat err2)"
has out2 "sample | The "
# Weights that nobody has trained are not scored.
unscored() { # CODE TEXT ARGUMENTS...
    local code2=0
    "$build/loongrun" eval recipe.yaml "${@:3}" >out2 2>err2 || code2=$?
    [ $code2 = "$1" ] || fail "eval ${*:3} ended with $code2, not $1"
    has err2 "$2"
}
unscored 66 "checkpoint.save: sav has no checkpoint" checkpoint.load=auto \
    checkpoint.save=sav
unscored 2 "auto needs checkpoint.save" checkpoint.load=auto ~checkpoint.save
unscored 2 "nothing to evaluate: set checkpoint.load" ~checkpoint.save
unscored 2 "auto evaluates the newest"
kill -TERM $pid
wait $pid || code=$?
pid=
[ $code = 75 ] || fail "TERM: exit $code, not 75"
has out "stopped at step "
has out "to go on: the same command with checkpoint.load=auto"
hasnt out $'\r'
hasnt err "nothing in this run reads it"
# Who runs, with what, how much.
head -n 1 out |
    grep -qE '^libloong [0-9.]+.* \| oneDNN [0-9.]+, HDF5 [0-9.]+' ||
    fail "no version"
[ ! -e "$source/.git" ] || head -n 1 out | grep -qE ' \(commit [0-9a-f]{7,}' ||
    fail "no commit"
for line in "run: tiny, recipe recipe.yaml, seed 1234" \
    "tokens per step: 128 (2 samples of 64)" "ranks: 1 = " \
    "1 threads each" "precision: " "memory of this rank:" \
    "optimizer: adamw, learning rate 0.001, cosine"; do
    has out "$line"
done
steps=$(sed -n 's/^stopped at step \([0-9]*\) .*/\1/p' out)
run 0 checkpoint.load=auto train.train_iters=$((steps + 2))
has out "resumed from "
has out "finished at step $((steps + 2)) of $((steps + 2))"

# An export carries the tokenizer of the recipe, by whatever name it had, and
# the id that ends a text; tools take options behind their operands too.
"$build/loong-data" tokenizer train --vocab-size 257 --suffixes .md \
    --output bpe.json "$source/docs" >/dev/null 2>&1
run 0 checkpoint.save=other data.tokenizer=bpe.json train.train_iters=1 \
    model.foundation.qk_layernorm=true \
    model.foundation.make_vocab_size_divisible_by=8 \
    model.foundation.hidden_dropout=0.0 model.foundation.window_size=0 \
    export.hf=hf log.dir=other_logs
cmp bpe.json hf/tokenizer.json || fail "the export has another tokenizer"
has hf/config.json '"eos_token_id": 0'
has hf/generation_config.json '"eos_token_id": 0'
has hf/tokenizer_config.json '"eos_token": "<|endoftext|>"'
has hf/tokenizer_config.json '"model_max_length": 64'
"$build/loong-ckpt" export other hf2 >out 2>err || fail "loong-ckpt export"
for file in config.json generation_config.json tokenizer_config.json \
    tokenizer.json model.safetensors; do
    cmp hf/$file hf2/$file || fail "loong-ckpt exports another $file"
done
# Defaults written out, and padding, make no other model; a rotary base does.
"$build/loong-ckpt" diff other hf >out 2>err || fail "diff of a model and itself"
hasnt out "model "
cp -r hf turned
sed -i 's/"rope_theta": [0-9.e+]*/"rope_theta": 500000/' turned/config.json
! "$build/loong-ckpt" diff other turned >out 2>err || fail "diff sees no base"
has out "model rotary_base: 10000 and 500000"
[ "$(grep -c '^model ' out)" = 1 ] || fail "diff sees more than the base"
"$build/loong-ckpt" import hf2 again >out 2>err &&
    "$build/loong-ckpt" export again hf3 --tokenizer bpe.json --pad 5 \
        >out 2>err || fail "an export with another tokenizer"
cmp bpe.json hf3/tokenizer.json || fail "another tokenizer"
has hf3/config.json '"eos_token_id": 0'
has hf3/config.json '"pad_token_id": 5'
# A step is measured alone, whatever the recipe saves, evaluates and exports:
# here it names the checkpoints of the run before, there it splits its data.
saved=$(ls save)
"$build/loong-bench" step recipe.yaml --steps 2 --floor-seconds 0 --json \
    >out 2>err || fail "bench of a recipe with checkpoints"
has out '"ms_median"'
[ "$saved" = "$(ls save)" ] || fail "a benchmark touched the checkpoints"
# The type that auto means is the trainer's.
run 0 --check --elsewhere
dtype=$(sed -n 's/^precision: \([a-z0-9]*\) (auto.*/\1/p' out)
"$build/loong-bench" step recipe.yaml --steps 1 --floor-seconds 0 --json \
    >out 2>err || fail "bench of a recipe without a type"
has out "\"dtype\":\"$dtype\""
"$build/loong-bench" step "$source/configs/recipes/demo_pretrain.yaml" \
    data.seq_length=16 train.micro_batch_size=1 train.global_batch_size=1 \
    --steps 1 --floor-seconds 0 >out 2>err || fail "bench of the demo"
has out 'tokens/s'

# The tokenizer is read at the start, whether or not text is sampled.
quiet="eval.sample.prompts=[] checkpoint.save=tokens train.train_iters=1"
run 66 $quiet data.tokenizer=nowhere.json
has err "nowhere.json"
has err "wanted by data.tokenizer"
run 66 $quiet data.tokenizer=logs
has err "wanted by data.tokenizer"
run 2 $quiet model.foundation.vocab_size=256
has err "the tokenizer has 257 ids, the model knows 256"
[ ! -e tokens/latest ] || fail "trained with the wrong tokenizer"
run 0 $quiet model.foundation.vocab_size=300
has out "tokenizer has 257 ids, the model knows 300: the last 43 are padding"

# Of 4 experts a token meets 2: in one layer 2 x 3 matrices of 32 x 16 rest.
run 0 $quiet model.foundation.family=qwen3_moe checkpoint.save=experts \
    model.foundation.num_experts=4 model.foundation.moe_router_topk=2 \
    model.foundation.moe_ffn_hidden_size=16
count='s/^parameters: \([0-9]*\) .*, active for a token: \([0-9]*\), .*/\1-\2/p'
[ $(($(sed -n "$count" out))) = 3072 ] || fail "parameters that are active"

# Messages.
run 2
has err "has checkpoints of an earlier run"
run 0 --check
has err "as it is, a run is refused: checkpoint.save: "
run 2 log.intervall=3
has err "did you mean log.interval?"
[ "$(grep -c 'wrong recipe' err)" = 1 ] || fail "told more than once"
run 2 checkpoint.load=auto data.seq_length=32
has err "data.seq_length"
run 2 comm.timeout=0
has err "comm.timeout"
run 66 device=cuda checkpoint.save=other
has err "no device cuda"
run 73 log.dir=recipe.yaml/logs checkpoint.save=other
has err "log.dir: recipe.yaml/logs cannot be made"
# A reader that stops, its pipe full: the training goes on and saves when asked;
# what waits is read when it wakes.
lines() { wc -l <logs/metrics.jsonl; }
within() { # SECONDS COMMAND...: until it holds
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
for reader in stopped woken; do
    rm -rf full logs
    mkfifo full
    exec 9<>full
    "$build/loongrun" recipe.yaml log.interval=100 eval.sample.prompts=[] \
        checkpoint.save=$reader >full 2>err &
    pid=$!
    within 20 test -s logs/metrics.jsonl || fail "$reader: no steps"
    timeout 1 head -c 1000000 /dev/zero >&9 || true
    before=$(lines)
    within 20 eval '[ $(lines) -gt $((before + 5)) ]' ||
        fail "the training waits for a reader of its log"
    if [ $reader = woken ]; then
        tr -d '\0' <full >out 9>&- &
    fi
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    pid=
    exec 9>&-
    [ $code = 75 ] || fail "$reader: exit $code, not 75"
    [ -e $reader/latest ] || fail "$reader: nothing saved"
done
wait
has out "stopped at step"
for step in $(sed -n 's/.*"step":\([0-9]*\),"total.*/\1/p' logs/metrics.jsonl); do
    has out "step $step/1000000 | loss"
done

echo "signals, exit codes and messages are as documented"
