#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: earlier_steps.sh BUILD SOURCE: checkpoints that are not the newest of
# checkpoint.save, of another directory, or imported: what a run that loads
# them saves, exports and evaluates; long lists of what is wrong with one.
set -eu
build=$1
source=$2
. "$source/tests/in_place.sh"

# run CODE ARGUMENTS...: the exit code must be this one
run() {
    local wanted=$1 code=0
    shift
    "$build/loongrun" "$@" >out 2>err || code=$?
    [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
}

has() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1"; }
same() { "$build/loong-ckpt" diff "$1" "$2" >out 2>err; }

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
device: cpu
model:
  foundation:
    family: qwen3
    num_layers: 12
    hidden_size: 16
    ffn_hidden_size: 16
    num_attention_heads: 2
    vocab_size: 257
    max_position_embeddings: 64
data:
  seq_length: 64
  train: [{path: text}]
  validation: [{name: docs, path: text}]
train: {global_batch_size: 1, train_iters: 4}
optimizer: {lr: 1e-2}
eval: {iters: 1}
YAML
run 0 recipe.yaml checkpoint.save=save checkpoint.save_interval=2

# The model that the run holds is exported, not the newest in the directory.
run 0 recipe.yaml checkpoint.save=save train.train_iters=2 \
    checkpoint.load=save/step_00000002 export.hf=hf
has err "nothing to train: the checkpoint is at step 2"
same save/step_00000002 hf || fail "another step was exported"
! same save/step_00000004 hf || fail "step 4 is step 2"

# Loaded from another directory, a step is saved in the run's own.
run 0 recipe.yaml checkpoint.save=own checkpoint.load=save export.hf=hf4
[ "$(cat own/latest)" = step_00000004 ] || fail "step 4 was not saved"
same save/step_00000004 hf4 || fail "the export is not what was loaded"

# Steps are there without `latest`, or with one that is wrong: auto goes on from
# the newest and says so, and --check foretells it; a new run is refused.
cp -a save lost
for latest in missing empty stale; do
    case $latest in
    missing) rm lost/latest; said="has neither checkpoint.json nor latest" ;;
    empty) : >lost/latest; said="lost/latest holds '', not the name" ;;
    stale) echo step_00000009 >lost/latest; said="has a latest that names" ;;
    esac
    run 2 recipe.yaml checkpoint.save=lost
    has err "lost has checkpoints of an earlier run"
    for check in --check ""; do
        # shellcheck disable=SC2086
        run 0 recipe.yaml $check checkpoint.save=lost checkpoint.load=auto
        has err "auto takes the step completed last: "
        has err "$said"
        [ -n "$check" ] || has out "resumed from lost/step_00000004 at step 4"
        [ -z "$check" ] || has out "check: it can run here"
    done
done

# A step that is passed over as damaged is not one of those that are kept.
cp -a save bad
printf x >>bad/step_00000004/rank_00000.h5
run 0 recipe.yaml --check checkpoint.save=bad checkpoint.load=auto
has err "bad/step_00000004 is damaged, the one before it is tried"
has out "bad/step_00000002: no tensor was read"
run 2 recipe.yaml --check checkpoint.save=bad checkpoint.load=auto \
    model.foundation.rotary_base=77
has err "wanted by checkpoint.load"
run 0 recipe.yaml checkpoint.save=bad checkpoint.load=auto train.train_iters=5 \
    checkpoint.keep_last=2
has err "bad/step_00000004 is damaged, the one before it is tried"
has out "resumed from bad/step_00000002 at step 2"
has out "checkpoint.keep_last does not count the damaged"
[ "$(echo bad/step_*)" = "bad/step_00000002 bad/step_00000005" ] ||
    fail "left: $(echo bad/step_*)"

# An export replaces one of its own model alone, which is asked at the start.
cp -r "$source/tests/golden/fixtures/qwen3_gqa_tied" theirs
run 2 recipe.yaml checkpoint.save=never export.hf=theirs
has err "'theirs' holds another model (qwen3 with "
has err "wanted for export.hf"
[ ! -e never ] || fail "it was trained"
cmp theirs/model.safetensors \
    "$source/tests/golden/fixtures/qwen3_gqa_tied/model.safetensors"

# An imported model has no moments: an evaluation does not ask for them, a
# training does unless it is told. What is missing is told, or how much more.
"$build/loong-ckpt" import hf4 imported >out 2>err || fail "import"
run 0 eval recipe.yaml checkpoint.load=save
sed -n 's/^step [0-9]* | \(eval .* tokens\) .*/\1/p' out >wanted
[ -s wanted ] || fail "no evaluation"
run 0 eval recipe.yaml checkpoint.load=imported
sed -n 's/^step [0-9]* | \(eval .* tokens\) .*/\1/p' out >found
cmp wanted found || fail "an imported model evaluates to something else"
run 2 recipe.yaml checkpoint.load=imported
has err "checkpoint.no_load_optim=true begins with moments of 0"
run 0 recipe.yaml checkpoint.load=imported checkpoint.no_load_optim=true \
    model.foundation.softmax_scale=0.3535533905932738 # 8 ** -0.5
# Another model with tensors of the same names and shapes is another model.
run 2 recipe.yaml checkpoint.load=imported checkpoint.no_load_optim=true \
    model.foundation.rotary_base=77 model.foundation.attention_dropout=0.1
has err "another model than was imported; what is meant goes into resume.over"
has err "model.foundation.rotary_base: 10000 in the checkpoint, now 77"
! grep -q attention_dropout err || fail "dropout is of the training"
run 2 eval recipe.yaml checkpoint.load=imported model.foundation.rotary_base=77
has err "model.foundation.rotary_base: 10000 in the checkpoint, now 77"
run 2 eval recipe.yaml checkpoint.load=imported model.foundation.family=llama
has err "model.foundation.family: qwen3 in the checkpoint, now llama"
run 0 recipe.yaml checkpoint.load=imported checkpoint.no_load_optim=true \
    model.foundation.rotary_base=77 \
    'resume.override=[model.foundation.rotary_base]'
has out "rotary_base: 10000 -> 77 (resume.override)"
run 2 recipe.yaml checkpoint.load=imported checkpoint.no_load_optim=true \
    model.foundation.num_layers=60 \
    'resume.override=[model.foundation.num_layers]'
has err "missing: param foundation."
grep -qE '^  and [0-9]+ more$' err || fail "a list ends without a count"

# What a recipe leaves to the family is as it was, or it is named: another
# family has the same tensors here, and turns them otherwise.
untied=model.foundation.untie_embeddings_and_output_weights=true
run 0 recipe.yaml checkpoint.save=llama train.train_iters=1 $untied \
    model.foundation.family=llama
run 2 recipe.yaml checkpoint.load=llama $untied \
    model.foundation.family=ernie4_5 \
    'resume.override=[model.foundation.family]'
has err "what is meant goes into resume.override: 3 problems"
has err "rotary_base: 10000.0 in the checkpoint, now 500000.0; set it to 10000"
run 0 recipe.yaml checkpoint.load=llama $untied model.foundation.family=llama
run 0 eval recipe.yaml checkpoint.load=llama $untied \
    model.foundation.family=llama
# A default that is written out is no change, and one that is left out neither.
for command in "" eval; do
    # shellcheck disable=SC2086
    run 0 $command recipe.yaml checkpoint.load=save \
        model.foundation.num_query_groups=2 \
        model.foundation.layernorm_epsilon=0.000001 \
        model.foundation.rope_scaling.type=none
    # shellcheck disable=SC2086
    run 2 $command recipe.yaml checkpoint.load=save \
        model.foundation.num_query_groups=1 '~model.foundation.ffn_hidden_size'
    has err "model.foundation.num_query_groups: 2 in the checkpoint, now 1"
    has err "ffn_hidden_size: 16 in the checkpoint, now 64; set it to 16 to go"
done
# How a model learns, and where its sizes are from, is not asked of one that is
# evaluated, and where it began not of one that goes on.
run 0 eval recipe.yaml checkpoint.load=save 'model.freeze=["layers.*"]' \
    model.foundation.attention_dropout=0.1 model.from_hf=hf4
run 2 recipe.yaml checkpoint.load=save model.foundation.attention_dropout=0.1 \
    model.foundation.init_method_std=0.1
has err "what is meant goes into resume.override: 1 problem"

# What auto was is kept: this processor does not multiply bf16.
export ONEDNN_MAX_CPU_ISA=AVX2
run 0 recipe.yaml checkpoint.save=auto train.train_iters=1
unset ONEDNN_MAX_CPU_ISA
run 0 recipe.yaml checkpoint.load=auto checkpoint.save=auto \
    precision.params_dtype=fp32
run 2 recipe.yaml checkpoint.load=auto checkpoint.save=auto \
    precision.params_dtype=bf16
has err "precision.params_dtype: fp32 in the checkpoint, now bf16"

# What a conversion took from masters is told, and what to do where
# moments are not there because parameters were frozen.
"$build/loong-ckpt" convert save/step_00000002 half --dtype bf16 >out 2>err ||
    fail "convert"
run 0 recipe.yaml checkpoint.load=half
has out "param: bf16 in the checkpoint, converted to fp32, what masters had bey"
run 0 recipe.yaml checkpoint.save=frozen train.train_iters=1 \
    'model.freeze=[layers.0.mlp]'
run 2 recipe.yaml checkpoint.load=frozen 'resume.override=[model.freeze]'
has err "the checkpoint has no moments of 3 parameters that are trained now"
run 0 recipe.yaml checkpoint.load=frozen 'resume.override=[model.freeze]' \
    checkpoint.no_load_optim=true

# Data may be moved, and a share may be said otherwise: the content counts.
cp text.bin none.bin
cp text.idx none.idx
run 0 recipe.yaml checkpoint.load=save data.tokenizer=bytes \
    "data.train=[{path: $PWD/none, weight: 3}]"
has out "data.train[0].path: text -> $PWD/none"
head -c "$(($(stat -c %s text.bin) / 2))" /dev/zero >none.mask.bin
run 2 recipe.yaml checkpoint.load=save 'data.train=[{path: none}]'
has err "  source 0 content: was "
has err "resume.override: [data] goes on with changed data"

# No token to learn is no loss of 0.
run 2 eval recipe.yaml checkpoint.load=save \
    'data.validation=[{name: none, path: none}]'
has err "data 'none': nothing of it carries loss"
# It is known before the training, as is a prompt with nothing to go on from.
for check in "" --check; do
    # shellcheck disable=SC2086
    run 2 recipe.yaml $check checkpoint.save=early \
        'data.validation=[{name: none, path: none}]' data.tokenizer=bytes \
        '+eval.sample.prompts=["the", ""]'
    has err "data 'none': nothing of it carries loss"
    has err "eval.sample.prompts[1] has no tokens"
done
[ ! -e early/latest ] || fail "it was trained"
# What only the evaluation finds does not cost the training.
cp text.bin high.bin
cp text.idx high.idx
printf '\377\177' | dd of=high.bin bs=2 seek=5 conv=notrunc status=none
run 1 recipe.yaml checkpoint.save=high export.hf=high_hf \
    data.validation='[{name: high, path: high}]'
has err "value 32767, allowed is 0 to 256"
[ "$(cat high/latest)" = step_00000004 ] || fail "step 4 was not saved"
same high/step_00000004 high_hf || fail "step 4 was not exported"
run 1 recipe.yaml checkpoint.save=leave train.exit_interval=2 eval.interval=2 \
    data.validation='[{name: high, path: high}]'
[ "$(cat leave/latest)" = step_00000002 ] || fail "step 2 was not saved"
# States of one class of optimizers are not those of another.
for class in lion sgd; do
    run 2 recipe.yaml checkpoint.load=save train.train_iters=5 \
        optimizer.name=$class 'resume.override=[optimizer.name]' \
        checkpoint.save=class
    [ $class = sgd ] || has err "which lion, its class of optimizers now, has not"
    [ $class = lion ] || has err "or of another class of optimizers"
    run 0 recipe.yaml checkpoint.load=save train.train_iters=5 \
        optimizer.name=$class 'resume.override=[optimizer.name]' \
        checkpoint.save=class_$class checkpoint.no_load_optim=true
done
# Nor is a training of less than a sample one that is over.
run 2 recipe.yaml '~train.train_iters' +train.train_tokens=63
has err "train.train_tokens: 63, less than a sample of data.seq_length 64"
echo "earlier, foreign and imported steps"
