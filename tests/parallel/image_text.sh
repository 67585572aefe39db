#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: image_text.sh BUILD SOURCE LAYOUTS STEPS [MODEL...]: drawn layouts of a
# model that reads texts with pictures equal one rank, each with layouts of the
# image encoder and the projector and a join of its own, resumed on others;
# others of them have the same bits. With MODEL these of tests/golden: pictures
# of sizes of their own, windows, deep features; in several layouts also with
# samples that share rows.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
cat >"$place/recipe.yaml" <<YAML
version: 1
device: cpu
model:
  image_encoder: {family: clip_vision_model, num_layers: 4, hidden_size: 12,
    ffn_hidden_size: 20, num_attention_heads: 4, image_size: 8, patch_size: 4,
    feature_layer: -2}
  image_projector: {family: mlp_projector}
  foundation: {family: llama, num_layers: 4, hidden_size: 16,
    ffn_hidden_size: 24, num_attention_heads: 4, num_query_groups: 4,
    vocab_size: 12, max_position_embeddings: 24}
data: {tokenizer: $place, image_token: <picture>, max_images: 8,
  train: [{path: $place/texts.jsonl}], seq_length: 24}
train: {global_batch_size: 12}
optimizer: {lr: 0.01, clip_grad: 1.0}
YAML
e=model.image_encoder.
# A step of `rare` has a picture or none: then encoder and projector stay, and
# ranks without pictures only meet the others where these share out gradients.
rare="data.train=[{\"path\":\"$place/rare.jsonl\"}]"
two=parallel.pipeline_model_parallel_size=2
zero="parallel.data_parallel_sharding=optim_grads_params
    parallel.bucket_bytes=4096"
# Of adapters AdamW lets rounding grow at a rate of 0.01: in 12 steps moments of
# data-parallel ranks alone come to 4e-8 of one rank's, with sgd to 5e-15; at
# 0.001 those of all layouts stay below 1e-14.
kinds=("" "$rare" "$rare train.exit_interval=2 $zero"
    "$zero model.freeze=[image_encoder.layers.0]"
    "train.kl_loss_coeff=0.5 ${e}freeze=true model.image_projector.freeze=true
    finetune.method=lora finetune.rank=2 optimizer.lr=0.001"
    "join=bubbles $two ${e}$two ${e}ranks=null model.image_projector.ranks=null
    model.foundation.ranks=null parallel.data_parallel_sharding=optim")
# drawn KIND [OPTION...]: with the recipe $recipe and $keys.
recipe=$place/recipe.yaml keys=()
drawn() {
    local kind=$1
    shift
    "$build/loong-bench" parity "$recipe" --ranks 8 "${keys[@]}" "$@" \
        >"$place/out" 2>&1 || {
        echo "FAILED: $kind"
        cut -c1-300 "$place/out"
        exit 1
    }
    echo "$kind: $(grep largest "$place/out")"
}
if [ $# -gt 4 ]; then
    cp "$source/tests/fixtures/images/tall.jpg" "$place/j420.jpg"
    cat >"$place/preprocessor_config.json" <<JSON
{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
"merge_size": 2, "temporal_patch_size": 2,
"size": {"shortest_edge": 64, "longest_edge": 384}}
JSON
    sed 's/Qwen2VL/Glm4v/; s/: 64/: 128/; s/: 384/: 768/' \
        "$place/preprocessor_config.json" >"$place/glm4v.json"
    echo '{"image_processor_type": "GotOcr2ImageProcessor", "max_patches": 4,
        "crop_to_patches": true, "size": {"height": 16, "width": 16}}' \
        >"$place/tiles.json"
    for model in "${@:5}"; do
        packed=(data.seq_length=48 data.row_images=4 data.row_patches=72
            data.max_images=16 "++data.max_patches=288"
            model.foundation.max_position_embeddings=64)
        recipe=$source/tests/golden/${model}_train.yaml
        keys=("data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place"
            model.image_encoder.num_layers=4 model.foundation.num_layers=4
            optimizer.lr=0.001 optimizer.clip_grad=1.0)
        case $model in
        qwen*) keys+=(data.max_patches=192
            "data.image_processor=$place/preprocessor_config.json") ;;
        # At 0.001 two layouts of 24 came to 2.5e-9 behind 12 steps and to 6e-14
        # behind 5: rounding grows with the steps.
        glm4v) keys+=(data.max_patches=192 optimizer.lr=0.0001
            "data.image_processor=$place/glm4v.json") ;;
        internvl) keys+=("data.image_processor=$place/tiles.json") ;;
        # Videos by an encoder of their own.
        two_encoders)
            . "$source/tests/train/texts_with_videos.sh"
            write_videos "$source" "$place/videos"
            texts=$(cat "$place/videos/texts.jsonl")
            printf '%s\n' "$texts"{,,,}{,,,} >"$place/videos/texts.jsonl"
            echo '{"video_processor_type": "Qwen2VLVideoProcessor", "fps": 2,
                "size": {"shortest_edge": 64, "longest_edge": 384},
                "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2,
                "min_frames": 2, "max_frames": 8, "do_sample_frames": true}' \
                >"$place/videos.json"
            keys+=("data.train=[{path: $place/videos/texts.jsonl, source: chat}]"
                "data.tokenizer=$place/videos" data.chat.cache="$place/cache"
                "data.image_processor=$place/preprocessor_config.json"
                "data.video_processor=$place/videos.json"
                model.video_encoder.num_layers=4 model.foundation.vocab_size=34
                model.foundation.max_position_embeddings=192
                data.seq_length=96 data.max_patches=320 data.max_videos=8
                data.max_video_patches=640)
            packed=(data.seq_length=192 data.row_images=6 data.row_patches=192
                "~data."{max_{images,patches},max_video{s,_patches}})
            ;;
        esac
        drawn "$model" --layouts "$3" --steps "$4"
        [ "$3" = 1 ] || [ "$model" = internvl ] ||
            drawn "$model packed" --layouts "$3" --steps "$4" \
                data.packing=greedy "${packed[@]}"
    done
    exit 0
fi
# The image encoder learns: where it is fixed another loss comes out.
last_loss() {
    "$build/loongrun" "$place/recipe.yaml" train.train_iters=3 \
        precision.params_dtype=fp64 "log.dir=$place/$1" "${@:2}" >"$place/out" \
        2>&1 || cat "$place/out"
    tail -n 1 "$place/$1/metrics.jsonl" | grep -oE '"loss":[^,]*'
}
if [ "$(last_loss learns)" = "$(last_loss fixed ${e}freeze=true)" ]; then
    echo "FAILED: the image encoder does not learn"
    exit 1
fi
for kind in "${kinds[@]}" --bits; do
    # shellcheck disable=SC2086
    drawn "${kind:-any}" --layouts "$3" --steps "$4" $kind
done
