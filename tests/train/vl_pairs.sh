#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: vl_pairs.sh BUILD SOURCE [all]: every image encoder with every projector
# that takes its rows and each of ten language models: of two steps, each on all
# the texts with pictures, the second has the lower loss. Without `all` some of
# them, each family among them.
set -eu
build=$1
source=$2
all=${3:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
cp "$source/tests/fixtures/images/tall.jpg" "$place/j420.jpg"
fixed="num_layers: 2, hidden_size: 16, ffn_hidden_size: 24,
    num_attention_heads: 2, patch_size: 4, init_method_std: 0.2"
encoders=(
    "vit|image_size: 16" "clip_vision_model|image_size: 16, feature_layer: -2"
    "siglip_vision_model|image_size: 16"
    "internvl_vision|image_size: 16, add_qkv_bias: true"
    "qwen2_vl_vision|" "qwen2_5_vl_vision|window_size: 16"
    "kimi_k25_vision|num_position_embeddings: 25" "rice_vit|"
    "siglip2_vision_model|num_position_embeddings: 36"
    "minicpmv4_6_vision|num_position_embeddings: 25, merger_layer: 0"
    "glm4v_vision|num_position_embeddings: 25"
    "qwen3_vl_vision|num_position_embeddings: 25, deepstack_layers: \"[0,1]\"")
projectors=(mlp_projector linear_projector patch_merger qwen2_5_vl_merger qwen3_vl_merger
    internvl_projector kimi_projector anyres_projector minicpmv4_6_merger
    "perceiver_resampler|num_latents: 3, num_layers: 1, num_attention_heads: 4,
    kv_channels: 6, num_query_groups: 2" glm4v_merger)
moe="num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 16"
foundations=(
    "gpt2|" "llama|num_query_groups: 2" "phi3|num_query_groups: 2"
    "qwen2|num_query_groups: 2, mrope_section: \"[1,1,1]\""
    "qwen3|num_query_groups: 2, num_deep_features: 2"
    "gemma|num_query_groups: 1, bidirectional_prefix: true"
    "glm4|num_query_groups: 2, kv_channels: 12, mrope_section: \"[1,1,1]\""
    "mixtral|num_query_groups: 2, $moe"
    "qwen3_moe|num_query_groups: 2, $moe, mrope_section: \"[1,1,1]\",
    mrope_interleaved: true, num_deep_features: 1"
    "deepseek_v3|kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4,
    v_head_dim: 8")
for cut in 1_1 1_2 2_1 2_2 4_1; do
    cat >"$place/$cut.json" <<JSON
{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
"merge_size": ${cut%_*}, "temporal_patch_size": ${cut#*_},
"size": {"shortest_edge": 64, "longest_edge": 384}}
JSON
done

echo '{"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 20}' \
    >"$place/siglip2.json"

fail() {
    echo "FAILED: $*"
    exit 1
}
# pair ENCODER PROJECTOR FOUNDATION
pair() {
    local e=${1%%|*} p=${2%%|*} f=${3%%|*} data="" keys=${3#*|} own=""
    [ "$e" = qwen3_vl_vision ] || keys=${keys/, num_deep_features: [12]/}
    [[ $2 != *\|* ]] || own=", ${2#*|}"
    local merge=2 frames=2
    [[ $p != mlp_projector && $p != linear_projector &&
        $p != anyres_projector && $p != perceiver_resampler ]] || merge=1
    [ "$e" != minicpmv4_6_vision ] || merge=$((2 * merge)) frames=1
    [[ $e != kimi_k25_vision && $e != rice_vit ]] || frames=1
    [[ $1 == *image_size* ]] ||
        data="image_processor: $place/${merge}_$frames.json, max_patches: 80,"
    [ "$e" != siglip2_vision_model ] ||
        data="image_processor: $place/siglip2.json, max_patches: 80,"
    cat >"$place/r.yaml" <<YAML
version: 1
seed: 3
device: cpu
model:
  image_encoder: {family: $e, $fixed, ${1#*|}}
  image_projector: {family: $p, init_method_std: 0.2$own}
  foundation: {family: $f, num_layers: 2, hidden_size: 24, ffn_hidden_size: 32,
    num_attention_heads: 4, vocab_size: 12, max_position_embeddings: 64,
    init_method_std: 0.2, $keys}
precision: {params_dtype: fp32}
data: {train: [{path: $place/texts.jsonl}], tokenizer: $place, $data
  image_token: <picture>, seq_length: 64, max_images: 8}
train: {global_batch_size: 24, micro_batch_size: 2, train_iters: 2}
optimizer: {lr: 0.01, lr_decay_style: constant}
log: {interval: 1, dir: $place/log}
YAML
    rm -rf "$place/log"
    # Lines are of tiles, which pictures of sizes of their own are not.
    if [[ $2 == anyres_projector && $1 != *image_size* ]]; then
        "$build/loongrun" "$place/r.yaml" >"$place/out" 2>&1 && fail "$e $2"
        grep -qE 'packed_tiles.* (an encoder of image_size|1 and 0 go)' \
            "$place/out" || fail "$e $2: $(cat "$place/out")"
        return
    fi
    # Rows of patches go no further than learned ones.
    if [[ $p == perceiver_resampler && $keys == *num_deep_features* ]]; then
        "$build/loongrun" "$place/r.yaml" >"$place/out" 2>&1 && fail "$e $p $f"
        grep -q 'num_latents 3 goes without .* deep features' "$place/out" ||
            fail "$e $p $f: $(cat "$place/out")"
        return
    fi
    "$build/loongrun" "$place/r.yaml" >"$place/out" 2>&1 || {
        cat "$place/out"
        fail "$e $p $f"
    }
    grep -oE '"loss":[^,}]*' "$place/log/metrics.jsonl" | sed 's/.*://' |
        awk '{ l[NR] = $1 } END { exit !(NR == 2 && l[2] < l[1]) }' ||
        fail "$e $2 $f: $(cat "$place/log/metrics.jsonl")"
    [ "$e" != qwen3_vl_vision ] || [[ $keys == *deep_features:\ 2* ]] ||
        grep -q 'warning: model: of 2 deep features .* left out' "$place/out" ||
        fail "$e $2 $f: deep features that are not read are not told"
    trained=$((trained + 1))
}
trained=0 n=0
for e in "${encoders[@]}"; do
    for p in "${projectors[@]}"; do
        for f in "${foundations[@]}"; do
            [ "$all" != all ] && [ $((n % 81)) != 0 ] || pair "$e" "$p" "$f"
            n=$((n + 1))
        done
    done
done
# 5 x 5 patches are no blocks of 2 x 2.
pair "siglip_vision_model|image_size: 16" patch_merger "llama|"
sed -i 's/image_size: 16/image_size: 20/' "$place/r.yaml"
"$build/loongrun" "$place/r.yaml" --check >"$place/out" 2>&1 &&
    fail "a side of 5 patches and merge_size 2"
grep -q 'image_size: found 20, multiples of' "$place/out" ||
    fail "merge_size: $(cat "$place/out")"
echo "$trained trainings, of $n pairs"
