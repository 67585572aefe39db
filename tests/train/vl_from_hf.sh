#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: vl_from_hf.sh BUILD SOURCE: whole published vision-language directories
# (tests/golden/vl_from_hf.py made them) by recipe and by loong-ckpt: the loss
# is that of transformers, and what is exported is what was read.
set -eu
build=$1
source=$2
golden=$source/tests/golden
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
cp "$source/tests/fixtures/images/tall.jpg" "$place/j420.jpg"
fail() {
    echo "FAILED: $*"
    exit 1
}
ckpt=$build/loong-ckpt

# step MODEL [KEY=VALUE...]: its loss against that of transformers.
step() {
    local model=$1
    shift
    rm -rf "$place/log" "$place/out" "$place/out.checkpoints"
    "$build/loongrun" "$golden/vl_from_hf.yaml" "log.dir=$place/log" \
        "data.train=[$place/texts.jsonl]" "export.hf=$place/out" \
        "checkpoint.save=$place/out.checkpoints" "$@" >"$place/text" 2>&1 || {
        cat "$place/text"
        fail "$model $*"
    }
    grep -oE '"loss":[^,}]*' "$place/log/metrics.jsonl" | sed 's/.*://' |
        paste -d ' ' - "$golden/vl_from_hf/$model.txt" | awk '{
            d = $1 - $2; d = d < 0 ? -d : d; exit d > 5e-9 * $2 }' ||
        fail "$model $*: the loss is another: $(cat "$place/log/metrics.jsonl")"
}
for model in internvl_chat glm4v ernie4_5_vl_moe llava qwen2_vl \
    qwen3_vl_moe_resaved qwen3_vl_moe; do
    from=$golden/vl_from_hf/$model
    keys=("~data.image_token")
    [ $model != internvl_chat ] || keys=(data.seq_length=40)
    # Of the class, whose vocabulary is larger; and biases as they are.
    [ $model != ernie4_5_vl_moe ] || keys+=("data.vision_token_ids=[1, 4]"
        model.foundation.moe_router_bias_update_rate=0)
    step $model "init.from_hf=$from" "${keys[@]}"
    for file in "$from"/*; do
        [[ $file =~ /(config.json|model.safetensors)$ ]] ||
            cmp "$file" "$place/out/${file##*/}" || fail "$model: $file"
    done
    "$ckpt" diff "$from" "$place/out" >"$place/text" || {
        cat "$place/text"
        fail "$model: export.hf is another model"
    }
    "$ckpt" verify "$from" >/dev/null
    "$ckpt" import "$from" "$place/$model" >/dev/null
    "$ckpt" verify "$place/$model" >/dev/null
    "$ckpt" diff "$from" "$place/$model" >/dev/null || fail "$model: import"
    "$ckpt" export "$place/$model" "$place/$model.hf" >/dev/null
    "$ckpt" diff "$from" "$place/$model.hf" >/dev/null || fail "$model: export"
    "$ckpt" inspect "$from" | grep -q '^model.image_projector family: ' ||
        fail "$model: inspect"
done
# As Kimi-K2.5 is published: the publisher's names and processor, experts of
# int4, whose products an export has (kimi_k25_published.py).
kimi=$golden/vl_from_hf/kimi_k25
for text in '"a<|media_pad|>b", "images": ["rgb.png"]' \
    '"c<|im_middle|>d<|im_middle|>e"' \
    '"<|media_pad|>k<|media_pad|>n", "images": ["j420.jpg", "rgb.png"]' \
    '"x<|im_middle|>y"'; do
    echo "{\"text\": $text}"
done >"$place/kimi.jsonl"
step kimi_k25 "init.from_hf=$kimi" "~data.image_token" data.seq_length=64 \
    "data.train=[$place/kimi.jsonl]" train.global_batch_size=4 \
    model.foundation.moe_router_bias_update_rate=0
grep -q '12 matrices of int4 with scales are read as the products, in bf16' \
    "$place/text" || fail "kimi_k25: int4 is not told"
"$ckpt" import "$kimi" "$place/kimi" >/dev/null
"$ckpt" export "$place/kimi" "$place/kimi.hf" >/dev/null
for other in "$kimi" "$place/kimi.hf"; do
    "$ckpt" diff "$other" "$place/kimi" >/dev/null || fail "kimi_k25: $other"
done
"$ckpt" inspect "$place/kimi.hf" >"$place/text"
grep -q 'experts.3.down_proj.weight bf16' "$place/text" ||
    fail "kimi_k25: $(grep experts.3 "$place/text")"
for file in tiktoken.model preprocessor_config.json; do
    cmp "$kimi/$file" "$place/kimi.hf/$file" || fail "kimi_k25: $file"
done
grep -E 'quantization_config|vt_hidden_size|auto_map' \
    "$place/kimi.hf/config.json" && fail "kimi_k25: config.json"
# What OpenGVLab publishes is an internvl of transformers' as well, and nothing
# that this class has not goes along.
"$ckpt" export --as internvl "$place/internvl_chat" "$place/as" >/dev/null
rm "$place/as/preprocessor_config.json"
step internvl_chat "init.from_hf=$place/as" data.seq_length=40 \
    "data.image_processor=$golden/vl_from_hf/internvl_chat/config.json"
grep -q '"model_type": "llama"' "$place/as/config.json" || fail "as internvl"
[ ! -e "$place/as/modeling_internvl_chat.py" ] || fail "code of another class"
sed 's/"ps_version": "v2",//' "$place/internvl_chat.hf/config.json" \
    >"$place/as/config.json"
"$ckpt" verify "$place/as" >"$place/text" 2>&1 && fail "ps_version v1 is read"
grep -qF 'ps_version is missing ("v2" is)' "$place/text" ||
    fail "ps_version: $(cat "$place/text")"
# peft takes adapters of stacked experts in the order of its own module alone.
step qwen3_vl_moe "init.from_hf=$from" finetune.method=lora \
    'finetune.target_modules=[q_proj, experts.gate_up_proj]'
grep -q '"fan_in_fan_out": false' "$place/out/adapter_config.json" ||
    fail "adapters of experts"
# Layer 0 of transformers is what the layers read, and of the engine none.
cp -r "$golden/vl_from_hf/llava" "$place/first"
sed -i 's/"vision_feature_layer": -2/"vision_feature_layer": 0/' \
    "$place/first/config.json"
"$ckpt" verify "$place/first" >"$place/text" 2>&1 && fail "a layer 0 is read"
grep -q 'vision_feature_layer = 0 is not supported' "$place/text" ||
    fail "layer 0: $(cat "$place/text")"
# A model that cannot be read has its cause told, once, and nothing is judged
# that would follow from it: phase, records, what stands for pictures.
broken() {
    "$build/loongrun" "$golden/vl_from_hf.yaml" --check training_phase=sft \
        "data.train=[$place/texts.jsonl]" "init.from_hf=$place/first" \
        "log.dir=$place/log" >"$place/text" 2>&1 && fail "$1: it is read"
    grep -c . "$place/text" | grep -qx "$2" && grep -qF "$1" "$place/text" ||
        fail "$1: $(cat "$place/text")"
}
sed -i 's/"vision_feature_layer": 0/"vision_feature_layer": -2/
    s/"head_dim": 4/"head_dim": 4, "foo": 1/' "$place/first/config.json"
broken 'text_config: foo = 1 is not supported' 5
sed -i 's/"foo": 1,//; s/"vision_config"/"vision"/' "$place/first/config.json"
broken 'vision_config, an object with the image_encoder, is missing' 5
# Of a part, types of its role; what a key is from, by its section.
wrong() {
    cp "$golden/vl_from_hf/llava/config.json" "$place/first/config.json"
    sed -i "$1" "$place/first/config.json"
    "$ckpt" verify "$place/first" >"$place/text" 2>&1 && fail "$1: it is right"
    [ "$(grep -cF "$2" "$place/text")" = 1 ] || fail "$1: $(cat "$place/text")"
}
wrong 's/"clip_vision_model"/"dinov2"/' \
    "vision_config.model_type 'dinov2' is not supported (vit, "
wrong 's/"text_config"/"text"/' 'text_config, an object with the foundation'
wrong 's/"vision_feature_layer": -2/"vision_feature_layer": -9/' \
    "feature_layer is from $place/first/config.json: vision_feature_layer"
# Of each component a directory.
i=init.from_hf
step qwen3_vl_moe model.foundation.$i="$from" model.image_encoder.$i="$from" \
    model.image_projector.$i="$from" data.tokenizer="$from" '~data.image_token' \
    data.image_processor="$from/preprocessor_config.json"
"$ckpt" diff "$from" "$place/out" >/dev/null || fail "three directories"
