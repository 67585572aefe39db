#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: kept_files.sh BUILD SOURCE: Python files and those of a tokenizer stay
# with a run: when the directory they came from is removed behind its start,
# and when a run goes on from a native checkpoint, again and again; and what
# config.json says of the part of a model that sees images.
set -eu
build=$1
source=$2
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
run() { "$build/loongrun" "$@" >out 2>err || fail "$*"; }
ckpt() { "$build/loong-ckpt" "$@" >out 2>err || fail "$*"; }

# kept DIRECTORY: what the source had, bit for bit
kept() {
    for file in configuration_internlm2.py modeling_internlm2.py helpers.py \
        tokenizer_config.json tokenizer.model; do
        cmp "model.first/$file" "$1/$file" || fail "$1 has no $file"
    done
}
# exported DIRECTORY
exported() {
    kept "$1"
    grep -q '"modeling_internlm2.InternLM2ForCausalLM"' "$1/config.json" ||
        fail "$1/config.json names no code"
    grep -q '"eos_token_id": 1,' "$1/config.json" ||
        fail "$1/config.json has another eos_token_id"
}

mkdir model
cp "$source"/tests/golden/fixtures/internlm2_dynamic/{config.json,model.safetensors} model
for name in configuration_internlm2 modeling_internlm2 helpers; do
    echo "# $name" >model/$name.py
done
echo '{"tokenizer_class": "None"}' >model/tokenizer_config.json
echo words >model/tokenizer.model
cp -r model model.first

# Ids of bytes, all of them below the vocabulary of 97.
for i in $(seq 2000); do echo $((i * 7919 % 100000)); done >digits.txt
"$build/loong-data" index --tokenizer bytes --quiet --output-prefix text \
    digits.txt >/dev/null
cat >recipe.yaml <<'YAML'
device: cpu
data: {train: [{path: text}], seq_length: 16}
train: {micro_batch_size: 2, global_batch_size: 2, train_iters: 1000000}
optimizer: {lr: 1e-3}
log: {interval: 1}
YAML

# ---- the directory is gone when it is saved ----
"$build/loongrun" recipe.yaml init.from_hf=model checkpoint.save=a >out 2>err &
job=$!
end=$((SECONDS + 30))
until grep -q '^step 5/' out; do
    [ $SECONDS -lt $end ] && kill -0 $job || fail "no steps"
    sleep 0.05
done
rm -r model
kill -TERM $job
code=0
wait $job || code=$?
job=
[ $code = 75 ] || fail "exit $code, not 75"
kept "a/$(cat a/latest)/hf"
ckpt export a a.hf
exported a.hf

# ---- a run goes on from a native checkpoint, and another from that ----
ckpt import model.first imported
ckpt draft model.first draft
sed 's/^device/defaults: [draft\/model.yaml@model.foundation]\n&/' \
    recipe.yaml >native.yaml
run native.yaml checkpoint.load=imported checkpoint.no_load_optim=true \
    train.train_iters=2 checkpoint.save=b export.hf=b.hf
rm -r imported
exported b.hf
run native.yaml checkpoint.load=auto checkpoint.save=b \
    train.train_iters=4 export.hf=c.hf
kept "b/$(cat b/latest)/hf"
exported c.hf

# ---- what is kept is compared: a damaged step is passed over, told ----
newest=b/$(cat b/latest)
echo '# other' >"$newest/hf/helpers.py"
run native.yaml checkpoint.load=auto checkpoint.save=b train.train_iters=6 \
    export.hf=d.hf
grep -q "$newest is damaged" err || fail "a changed helpers.py is not told"
exported d.hf
newest=b/$(cat b/latest)
"$build/loongrun" native.yaml --check checkpoint.load="$newest" \
    train.train_iters=8 >out 2>err || fail "a whole checkpoint is refused"
grep -q "$newest: no tensor was read" out || fail "what is not read is not told"
echo '# other' >"$newest/hf/helpers.py"
for check in --check ""; do
    # shellcheck disable=SC2086
    ! "$build/loongrun" native.yaml $check checkpoint.load="$newest" \
        train.train_iters=8 >out 2>err || fail "a changed helpers.py is loaded"
    grep -q 'hf/helpers.py: checksum' err || fail "which file is not told"
done

# ---- an encoder's preprocessing ----
cp -r "$source/tests/golden/vision/vit" encoder
echo '{"image_processor_type": "ViTImageProcessor", "size": 12}' \
    >encoder/preprocessor_config.json
ckpt import encoder encoder.native
ckpt export encoder.native i.hf
mkdir -p pictures/a
cp "$source/tests/fixtures/images/rgb.png" pictures/a
cat >pictures.yaml <<'YAML'
device: cpu
data: {train: [{path: pictures}],
  image_processor: encoder/preprocessor_config.json}
train: {global_batch_size: 1, train_iters: 1}
optimizer: {lr: 1e-3}
YAML
run pictures.yaml init.from_hf=encoder checkpoint.save=h export.hf=h.hf
for exported in i.hf h.hf; do
    cmp encoder/preprocessor_config.json $exported/preprocessor_config.json ||
        fail "$exported has another preprocessing"
done

# ---- a model that sees images ----
has() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1"; }
vl=$source/tests/golden/fixtures/ernie4_5_vl_moe
tr 0-9 '\1-\12' <digits.txt >small.txt # the vocabulary has 61 ids
"$build/loong-data" index --tokenizer bytes --quiet --output-prefix text \
    small.txt >/dev/null
run recipe.yaml model.foundation.init.from_hf="$vl" checkpoint.save=e train.train_iters=2 \
    export.hf=e.hf
has err "data.vision_token_ids is not set"
has err "image_token_id of config.json is 100295"
run recipe.yaml model.foundation.init.from_hf="$vl" checkpoint.save=f train.train_iters=2 \
    'data.vision_token_ids=[3, 5]'
! grep -q 'vision_token_ids is not set' err || fail "told, but it is set"
ckpt draft "$vl" vl
sed 's/^device/defaults: [vl\/model.yaml@model.foundation]\n&/' \
    recipe.yaml >vl.yaml
run vl.yaml checkpoint.load=f checkpoint.save=g train.train_iters=4 \
    'data.vision_token_ids=[3, 5]' export.hf=g.hf
for hf in e.hf g.hf; do
    has $hf/config.json '"image_token_id": 100295'
    has $hf/config.json '"video_end_token_id": 101307'
    has $hf/config.json '"patch_size":2'
done
for model in foundation.init.from_hf="$vl" \
    from_hf="$source/tests/golden/fixtures/llama3_gqa_tied"; do
    ! "$build/loongrun" recipe.yaml "model.$model" \
        'data.vision_token_ids=[3, 1000]' >out 2>err || fail "$model: not judged"
    has err "data.vision_token_ids[1]: 1000, the vocabulary has 0 to"
done
has err "has no effect without model.foundation.moe_vision_ffn_hidden_size"
