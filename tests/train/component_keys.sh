#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: component_keys.sh BUILD SOURCE MPIRUN: what a recipe says of one
# component of a model of LLaVA's shape: where it starts from, its types, its
# recomputation, its learning rate; and how components are joined.
set -eu
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
e=model.image_encoder j=model.image_projector f=model.foundation

# run RANKS NAME [KEY=VALUE...]: the losses and norms of steps go to NAME.
run() {
    local ranks=$1 name=$2 start=()
    shift 2
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    "${start[@]}" "$build/loongrun" "${recipe:-$source/tests/golden/llava_train.yaml}" \
        "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
        train.train_iters=2 "log.dir=log.$name" "$@" >"$name.out" 2>&1 || {
        echo "FAILED: $name"
        cat "$name.out"
        exit 1
    }
    grep -oE '"(loss|grad_norm)":[^,}]*' "log.$name/metrics.jsonl" >"$name"
}
same() {
    cmp -s "$1" "$2" || {
        echo "FAILED: $1 and $2 are not the same"
        paste "$1" "$2"
        exit 1
    }
}
# near A B PART: by that part of A at most.
near() {
    paste -d : "$1" "$2" | awk -F: -v part="$3" -v names="$1, $2" '{
        off = $2 - $4; if (off < 0) off = -off
        if (!(off <= part * $2)) { print "FAILED: " names ": " $0; bad = 1 } }
        END { exit bad || NR != 4 }'
}
differ() {
    ! cmp -s "$1" "$2" || {
        echo "FAILED: $1 and $2 are the same"
        exit 1
    }
}
# refused TEXT KEY=VALUE...
refused() {
    local text=$1
    shift
    if "$build/loongrun" "$source/tests/golden/llava_train.yaml" \
        "${mode:---dry-run}" "data.tokenizer=$place" "$@" >out 2>&1 ||
        ! grep -qF "$text" out; then
        echo "FAILED: $* should be refused: $text"
        cat out
        exit 1
    fi
}

# Components from directories of their own, without a key of what they are, go
# on as the model that these were exported from; what is in none starts by rule.
run 1 trained $j.freeze=true checkpoint.save=save
for name in image_encoder foundation; do
    "$build/loong-ckpt" export --quiet --component $name save $name
done
"$build/loong-ckpt" export --component image_projector save none 2>err || true
grep -q 'has no Hugging Face model type (gpt2, .* have)' err || {
    echo "FAILED: export of a projector"
    cat err
    exit 1
}
! "$build/loong-ckpt" export --component nothing save none 2>err &&
    grep -q 'components: image_encoder image_projector foundation$' err || {
    echo "FAILED: the components are not listed: $(cat err)"
    exit 1
}
run 1 resumed $j.freeze=true checkpoint.load=save checkpoint.no_load_optim=true \
    train.train_iters=4
cat >own.yaml <<YAML
version: 1
seed: 5
device: cpu
model:
  image_encoder: {init: {from_hf: image_encoder}, feature_layer: -2}
  image_projector: {family: mlp_projector, init_method_std: 0.3, freeze: true}
  foundation: {init: {from_hf: foundation}}
init: {by_scope: [{scope: linear_*.weight, std: 0.3}]}
precision: {params_dtype: fp64}
data: {image_token: <picture>, seq_length: 24, max_images: 8}
train: {global_batch_size: 24, micro_batch_size: 2}
optimizer: {lr: 0.01, lr_decay_style: constant, clip_grad: 0, weight_decay: 0}
log: {interval: 1}
YAML
recipe=own.yaml run 1 own
same own resumed
recipe=own.yaml run 2 own_by_two $e.parallel.tensor_model_parallel_size=2
same own own_by_two
refused 'family llama, which model.image_encoder has not' $e.init.from_hf=foundation

run 1 base
run 1 again $e.recompute.granularity=full $f.recompute.granularity=selective \
    "$f.recompute.scopes=[layers.*.mlp]"
same base again
run 1 all_again recompute.granularity=full
same base all_again
run 1 phases join=phases
same base phases
pp=parallel.pipeline_model_parallel_size=2
run 1 bubbles join=bubbles
same base bubbles
run 2 gaps join=bubbles $pp train.micro_batch_size=1
run 1 ungapped train.micro_batch_size=1
near gaps ungapped 1e-8
# A message has the pictures of an encoder's micro-batch, not of a text's.
run 2 wide train.micro_batch_size=1 data.max_images=4 \
    $e.train.micro_batch_size=24 join=two_pass $e.ranks=0 $j.ranks=1
near wide ungapped 1e-8
# What joins and deals are worth is told without a step.
args=("$source/tests/golden/llava_train.yaml" "data.tokenizer=$place"
    "data.train=[{path: $place/texts.jsonl}]")
"$build/loongrun" "${args[@]}" --dry-run --ranks 4 $pp >out 2>&1
cp out fits
"$build/loongrun" "${args[@]}" --dry-run --ranks 2 $pp $e.$pp \
    $e.feature_layer=-1 >out 2>&1
for line in 'fits:coupled .*, *1.00 times as fast (components before' \
    'fits:phases .* times' 'fits:two_pass .* times' 'fits:bubbles .* times' \
    'out:coupled .* is not there (.*: image_encoder has 2 stages' \
    'out:coupled .*, *1.00 times as fast$' \
    'out:bubbles .* times as fast$'; do
    grep -q "^    ${line#*:}" "${line%%:*}" || {
        echo "FAILED: a dry run without $line"
        cat "${line%%:*}"
        exit 1
    }
done
for wrong in 0 2,x 2,0 '' -2 4000000000 2.5 2,; do
    code=0
    "$build/loong-bench" costs --ranks "$wrong" "${args[@]}" >out 2>&1 ||
        code=$?
    [ $code = 2 ] && grep -qF -- "--ranks '$wrong': whole numbers" out || {
        echo "FAILED: --ranks '$wrong'"
        exit 1
    }
done
"$build/loong-bench" costs --ranks 2 --out rates "${args[@]}" 2>&1 |
    grep -q 'out with --ranks' || {
    echo "FAILED: --ranks --out"
    exit 1
}
"$build/loong-bench" costs --ranks 2,64 --steps 2 "${args[@]}" \
    data.balance=false >out 2>&1
grep -q '^   64 ranks: most to do / mean .* times as fast$' out &&
    grep -q '^data.balance: false .*: a run takes them as drawn' out || {
    echo "FAILED: loong-bench costs --ranks"
    cat out
    exit 1
}
refused 'found optim_grads: replicas of image_encoder meet in every micro-batch' \
    join=bubbles parallel.data_parallel_sharding=optim_grads
refused 'join bubbles places the micro-batches of all steps alike' \
    join=bubbles 'train.rampup_batch_size=[12,12,24]'

# Without a rate a component stays as it is.
run 1 no_rate $e.optimizer.lr=0
run 1 frozen $e.freeze=true
same <(grep loss no_rate) <(grep loss frozen)
differ base no_rate
run 1 rates $e.optimizer.lr=0.01 $j.optimizer.lr=0.01 optimizer.lr=1e-4 \
    $f.optimizer.lr=0.01
same base rates

# Edges between types carry the wider one: it is the same on other ranks.
types=(precision.params_dtype=bf16 $e.precision.params_dtype=fp32
    "$f.precision.fp32_scopes=[layers.0]")
run 1 mixed "${types[@]}"
run 2 mixed_by_two "${types[@]}" $e.parallel.tensor_model_parallel_size=2
run 1 narrow precision.params_dtype=bf16
differ mixed narrow
near mixed mixed_by_two 0.01
refused 'fp64 goes with fp64 alone' $e.precision.params_dtype=bf16

refused 'image_projector.ffn_hidden_size = 20: of model type llava it is' \
    checkpoint.save=save export.hf=hf $j.ffn_hidden_size=20
refused 'no parameter matches image_encodr.*; their names are image_encoder.' \
    'model.freeze=[image_encodr.*]'
v=model.video_encoder
tower=($v.family=qwen2_vl_vision $v.num_layers=1 $v.hidden_size=16
    $v.num_attention_heads=2 $v.patch_size=4)
refused 'all three, or five, must be there' "${tower[@]}"
refused 'model.video_encoder.family: clip_vision_model reads pictures, and no' \
    "${tower[@]}" $v.family=clip_vision_model $v.image_size=8 \
    model.video_projector.family=mlp_projector
refused 'data.max_videos: is of a video_encoder beside an image_encoder' \
    ++data.max_videos=2
refused 'join: has no effect on a model of one component' join=phases \
    "~$e" "~$j"
# Twenty-four samples are twelve micro-batches of texts, six of the encoder.
"$build/loongrun" "$source/tests/golden/llava_train.yaml" --dry-run \
    "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
    $e.train.micro_batch_size=4 --schedule-plot plot.svg >out 2>&1
grep -q 'image_encoder.*, 16 pictures.*, 1 of 6 in memory, train.micro' out || {
    echo "FAILED: the encoder reads pictures of four samples at once"
    cat out
    exit 1
}
refused 'found 3; multiples and parts of train.micro_batch_size 2 are there' \
    $e.train.micro_batch_size=3
refused 'begins with layer 3, the last one that is read is 2 (feature_layer)' \
    --ranks 3 $e.parallel.pipeline_model_parallel_size=3
refused 'wanted of image_encoder' $e.parallel.pipeline_model_parallel_size=2 \
    --ranks 2 $e.parallel.num_layers_per_virtual_pipeline_stage=2
refused 'are of several stages of foundation' --ranks 2 \
    join=bubbles $pp $e.parallel.tensor_model_parallel_size=2
refused '4 heads of tensor parallel rank 0; a divisor of them is wanted' \
    --ranks 3 $e.parallel.context_parallel_size=3
refused "matches no scope" $e.recompute.granularity=selective \
    "$e.recompute.scopes=[nothing]"
refused 'selective needs it' $e.recompute.granularity=selective

# Without a class token no row is left out, and an export says so.
siglip=("~$e" "++$e={family: siglip_vision_model, num_layers: 2, hidden_size: 12,
    ffn_hidden_size: 20, num_attention_heads: 4, image_size: 8, patch_size: 4,
    feature_layer: -1}")
run 1 siglip "${siglip[@]}" precision.params_dtype=fp32 \
    export.hf=siglip_hf checkpoint.save=siglip_save
grep -q '"vision_feature_select_strategy": "full"' siglip_hf/config.json || {
    echo "FAILED: an encoder without a class token"
    cat siglip_hf/config.json
    exit 1
}
refused 'select_class_token: false, but add_class_token is false' \
    "${siglip[@]}" $e.select_class_token=false

# Pictures that no component reads are no data of the model.
mode=--check refused 'image_text has pictures, which the model does not read' \
    "data.train=[{path: $place/texts.jsonl, source: image_text}]" \
    "~$e" "~$j" '~data.max_images'
echo "components with keys of their own"
