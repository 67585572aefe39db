#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: llava_train.sh BUILD SOURCE MPIRUN [all]: the steps of models of the
# shapes of LLaVA, LLaVA-OneVision, PaliGemma, InternVL, Qwen2-VL, Qwen2.5-VL,
# Qwen3-VL (with experts, too), GLM-4.1V, Kimi-K2.5, LLaVA-OneVision-1.5, SigLIP
# 2, MiniCPM-V 4.6 and ERNIE 4.5 VL are those of transformers (*_train.py in
# tests/golden), with the image encoder trained and frozen, on several ranks:
# twenty of the first model, five of the others; all: twenty of all, in every
# layout.
set -eu
build=$1
source=$2
mpirun=$3
all=${4:-}
runs=0
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
e=model.image_encoder.parallel. t=tensor_model_parallel_size
c=parallel.context_parallel_size k=parallel.cp_comm_type

model=llava_train
golden=
texts="{path: $place/texts.jsonl}"
keys=()
count=20

# steps RANKS FIRST [KEY=VALUE...]: the metrics against lines FIRST on.
steps() {
    local ranks=$1 first=$2 run=()
    shift 2
    [ "$ranks" = 1 ] || run=("$mpirun" --oversubscribe -n "$ranks")
    rm -rf "$place/log"
    "${run[@]}" "$build/loongrun" "$source/tests/golden/$model.yaml" \
        "data.train=[$texts]" "data.tokenizer=$place" \
        "log.dir=$place/log" train.train_iters=$count "${keys[@]}" "$@" \
        >"$place/out" 2>&1 || {
        cat "$place/out"
        exit 1
    }
    grep -oE '"(loss|grad_norm)":[^,}]*' "$place/log/metrics.jsonl" |
        sed 's/.*://' | paste -d ' ' - - >"$place/got"
    tail -n +"$first" "$source/tests/golden/${golden:-$model}.txt" |
        head -n $count | paste -d ' ' - "$place/got" |
        awk -v n=$count -v what="$ranks ranks $*" '
        function off(a, b) { d = a - b; d = d < 0 ? -d : d; return d > 1e-8 * a }
        NF != 4 || off($1, $3) || off($2, $4) {
            printf "FAILED: %s, step %d: %s\n", what, NR, $0; bad = 1 }
        END { if (NR != n || bad) exit 1 }'
    runs=$((runs + 1))
}
# One of the layouts that are taken when all are.
also() {
    [ "$all" != all ] || steps "$@"
}
steps 1 1
also 1 1 train.micro_batch_size=1 data.max_images=2
also 2 1 parallel.$t=2 parallel.sequence_parallel=true
also 2 1 ${e}$t=2 ${e}sequence_parallel=true \
    parallel.data_parallel_sharding=optim_grads_params
steps 4 1 ${e}$t=2 parallel.$t=2 parallel.pipeline_model_parallel_size=2 \
    --profile "$place/trace" --schedule-plot "$place/step.svg"
m=model. r=ranks
also 4 1 ${m}image_encoder.$r=0-1 ${m}image_projector.$r=0-1 \
    ${m}foundation.$r=2-3 parallel.pipeline_model_parallel_size=2
also 2 1 $c=2 $k=a2a join=bubbles train.micro_batch_size=1 data.max_images=2
also 4 21 $c=2 parallel.$t=2 parallel.sequence_parallel=true join=two_pass \
    model.image_encoder.freeze=true
also 4 21 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=1- ${e}$t=2 model.image_encoder.freeze=true
also 1 21 model.image_encoder.freeze=true
also 2 21 model.image_encoder.freeze=true parallel.$t=2
# A picture in four steps, on one rank and in one micro-batch of it: elsewhere
# encoder and projector stay, and so does their age.
rare=("data.train=[{path: $place/rare.jsonl}]" train.global_batch_size=4
    train.micro_batch_size=1)
also 1 41 "${rare[@]}"
steps 2 41 "${rare[@]}" parallel.data_parallel_sharding=optim_grads_params
also 4 41 "${rare[@]}" parallel.pipeline_model_parallel_size=2 ${e}$t=2 \
    join=phases
also 3 41 "${rare[@]}" ${m}image_encoder.$r=0-1 ${m}image_projector.$r=1 \
    ${m}foundation.$r=1-2
# The timeline of four ranks has all components; measured, encoder and projector
# leave micro-batches out that have no picture.
drawn() {
    grep -o "<title>$1, $2, micro-batch [0-9]*" "$place/step.svg" | wc -l
}
encoder=$(drawn image_encoder forward)
projector=$(drawn image_projector forward)
if [ "$(drawn foundation forward)" != 96 ] || [ "$encoder" -ge 96 ] ||
    [ "$projector" -ge "$encoder" ] || [ "$projector" -le 48 ]; then
    echo "FAILED: $encoder of encoder, $projector of projector are drawn"
    exit 1
fi
"$build/loongrun" "$source/tests/golden/llava_train.yaml" --dry-run --ranks 4 \
    "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
    parallel.$t=2 parallel.pipeline_model_parallel_size=2 \
    --schedule-plot "$place/step.svg" >"$place/out"
if [ "$(drawn image_encoder backward)" != 48 ] ||
    [ "$(drawn foundation backward)" != 48 ]; then
    echo "FAILED: the predicted timeline"
    cat "$place/out"
    exit 1
fi

[ "$all" = all ] || count=5
# What stands before the first learned token sees all of itself.
model=paligemma_train
also 1 1 train.micro_batch_size=1 data.max_images=2
also 1 21 model.image_encoder.freeze=true
also 2 1 ${e}$t=2 parallel.$t=2 parallel.sequence_parallel=true
steps 4 1 ${e}$t=2 model.image_projector.parallel.$t=2 parallel.$t=2 \
    parallel.pipeline_model_parallel_size=2
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
also 2 1 data.packing=best_fit data.row_images=8 data.row_patches=32 \
    "~data.max_images" data.seq_length=48 train.global_batch_size=5 \
    model.foundation.max_position_embeddings=48 train.micro_batch_size=1 \
    parallel.pipeline_model_parallel_size=2
"$build/loongrun" "$source/tests/golden/$model.yaml" --dry-run --ranks 2 \
    "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
    "~model.image_encoder" "~model.image_projector" "~data.image_token" \
    "~data.max_images" parallel.context_parallel_size=2 \
    >"$place/out" 2>&1 && {
    echo "FAILED: a prefix that sees all of itself, on ranks of CP"
    exit 1
}
grep -q 'context_parallel_size 2: with bidirectional_prefix' "$place/out" || {
    cat "$place/out"
    exit 1
}

# Layer scale, one norm of all heads, blocks of four patches, in three or five
# tiles of a picture.
model=internvl_train
keys=("data.image_processor=$place/preprocessor_config.json")
cp "$source/tests/fixtures/images/tall.jpg" "$place/j420.jpg"
echo '{"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": true,
    "size": {"height": 16, "width": 16}, "max_patches": 4}' \
    >"$place/preprocessor_config.json"
also 1 1 train.micro_batch_size=1 data.max_images=2
also 1 21 model.image_encoder.freeze=true
also 4 1 parallel.$t=2 ${e}$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.$t=2 \
    model.image_projector.parallel.sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2
also 4 1 $c=4 $k=all_gather ${e}context_parallel_size=2 join=phases
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params

# Tiles of a picture alone are one sheet again, which loses its margin or is
# resampled; lines end with a learned row.
model=llava_onevision_train
sed '2~2s/\["rgb.png"\]/["j420.jpg"]/' "$place/texts.jsonl" \
    >"$place/onevision.jsonl"
texts="{path: $place/onevision.jsonl}"
echo '{"image_processor_type": "LlavaOnevisionImageProcessor",
    "size": {"height": 8, "width": 8},
    "image_grid_pinpoints": [[8, 8], [24, 24], [48, 24], [16, 16]]}' \
    >"$place/preprocessor_config.json"
also 1 1
also 1 21 model.image_encoder.freeze=true train.micro_batch_size=1
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
also 4 1 join=bubbles parallel.pipeline_model_parallel_size=2 $c=2 \
    train.micro_batch_size=1 data.max_images=2 data.max_patches=80
also 4 1 ${e}$t=2 parallel.$t=2 parallel.sequence_parallel=true \
    model.image_projector.parallel.$t=2 \
    model.image_projector.parallel.sequence_parallel=true
also 2 1 data.packing=best_fit data.row_images=8 data.row_patches=320 \
    "~data.max_images" "~data.max_patches" data.seq_length=100 \
    train.global_batch_size=6 model.foundation.max_position_embeddings=128 \
    train.micro_batch_size=1
"$build/loong-data" show "$source/tests/golden/$model.yaml" --samples 24 \
    "data.train=[$texts]" "data.tokenizer=$place" "${keys[@]}" \
    --out "$place/page.html" >"$place/out"
for rows in '5 places 0 to 31' '4 places 0 to 43' '5 places 8 to 12'; do
    grep -o 'places [0-9]* to [0-9]* of the text' "$place/page.html" |
        sort | uniq -c | grep -q " $rows of" || {
        echo "FAILED: the page of packed pictures has not $rows"
        exit 1
    }
done
texts="{path: $place/texts.jsonl}"

# Pictures of sizes of their own: one is wide, one is high.
model=qwen2_vl_train
cat >"$place/preprocessor_config.json" <<JSON
{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
"merge_size": 2, "temporal_patch_size": 2,
"size": {"shortest_edge": 64, "longest_edge": 384}}
JSON
steps 1 1
also 2 21 parallel.$t=2 ${e}$t=2 ${e}sequence_parallel=true \
    model.image_encoder.freeze=true
also 4 1 parallel.$t=2 parallel.sequence_parallel=true \
    model.image_projector.parallel.$t=2 parallel.pipeline_model_parallel_size=2 \
    model.image_projector.parallel.sequence_parallel=true
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 \
    parallel.data_parallel_sharding=optim_grads_params

# Two ranks, whose micro-batches are dealt by what pictures cost: the losses of
# the first step are those of a deal as drawn, and rates change the deal.
dealt() {
    rm -rf "$place/log"
    "$mpirun" --oversubscribe -n 2 "$build/loongrun" \
        "$source/tests/golden/$model.yaml" "${keys[@]}" \
        "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
        train.global_batch_size=8 train.micro_batch_size=1 data.max_images=2 \
        train.train_iters=1 "log.dir=$place/log" "$@" >"$place/out" 2>&1
}
of_loss() { grep -o '"loss":[^,]*' "$place/log/metrics.jsonl"; }
planned() { grep -o 'planned cost .*' "$place/out"; }
dealt data.balance=false
loss=$(of_loss)
dealt
[ "$loss" = "$(of_loss)" ] || {
    echo "FAILED: $(of_loss) dealt by cost, $loss as drawn"
    exit 1
}
by_operations=$(planned)
echo '{"rates": {"rows": 0, "text": 0, "encoder": 0, "pictures": 5000000}}' \
    >"$place/costs.json"
dealt "data.costs=$place/costs.json"
awk -v a="$by_operations" -v b="$(planned)" 'BEGIN { split(a, x, "[ ,]+")
    split(b, y, "[ ,]+"); exit !(x[3] < x[6] && y[3] < y[6] && y[6] > x[6]) }' ||
    {
        echo "FAILED: $by_operations by operations, by rates $(planned)"
        exit 1
    }
dealt data.max_patches=16 && {
    echo "FAILED: a picture of more patches than there is room for"
    exit 1
}
grep -qE 'data.max_patches: picture . of .*/texts.jsonl:[0-9]+ \([0-9]+ x ' \
    "$place/out" || {
    cat "$place/out"
    exit 1
}

# Windows of four patches a side, one of three layers without.
model=qwen2_5_vl_train
also 1 21 model.image_encoder.freeze=true
also 2 1 ${e}$t=2 ${e}sequence_parallel=true
steps 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 $c=2 $k=p2p \
    parallel.data_parallel_sharding=optim_grads_params

# Positions that are resampled, features of two deep layers.
model=qwen3_vl_train
also 1 1 train.micro_batch_size=1 data.max_images=2
also 4 1 $c=2 $k=a2a parallel.pipeline_model_parallel_size=2 \
    ${e}pipeline_model_parallel_size=2
also 4 1 join=bubbles parallel.pipeline_model_parallel_size=2 parallel.$t=2 \
    ${e}pipeline_model_parallel_size=2 train.micro_batch_size=1 data.max_images=2
also 1 21 model.image_encoder.freeze=true
also 4 1 parallel.$t=2 parallel.sequence_parallel=true ${e}$t=2 \
    model.image_projector.parallel.$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
# The same with experts.
model=qwen3_vl_moe_train
x=parallel.expert_model_parallel_size
also 1 1
also 1 21 model.image_encoder.freeze=true
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 $x=2 parallel.data_parallel_sharding=optim_grads
steps 4 1 $x=2 parallel.$t=2 parallel.sequence_parallel=true ${e}$t=2 \
    model.image_projector.parallel.$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2
# Several samples in each of six rows, which are all of them: the steps of each
# alone.
packed=(data.packing=best_fit data.seq_length=48 data.row_patches=160
    data.row_images=8 "~data.max_patches" "~data.max_images"
    model.foundation.max_position_embeddings=64 train.global_batch_size=6
    train.micro_batch_size=1)
steps 2 1 "${packed[@]}" $c=2 $k=a2a $x=2 \
    parallel.data_parallel_sharding=optim_grads_params
also 2 1 "${packed[@]}" parallel.data_parallel_sharding=optim_grads_params
also 2 1 "${packed[@]}" parallel.$t=2 parallel.sequence_parallel=true \
    train.micro_batch_size=2
also 2 21 "${packed[@]}" model.image_encoder.freeze=true \
    parallel.pipeline_model_parallel_size=2
dealt "${packed[@]}" data.row_patches=16 && {
    echo "FAILED: a sample of more patches than a row has"
    exit 1
}
grep -qE 'texts.jsonl:[0-9]+ .* 16 \(data.row_patches\)' "$place/out" || {
    cat "$place/out"
    exit 1
}
model=qwen2_5_vl_train
also 1 1 "${packed[@]}" data.packing=greedy train.micro_batch_size=2
model=qwen2_vl_train
also 2 1 "${packed[@]}" ${e}$t=2 train.micro_batch_size=3
model=qwen3_vl_train
# The first stage has one of the two layers that read them.
"$build/loongrun" "$source/tests/golden/$model.yaml" --dry-run --ranks 2 \
    "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
    "${keys[@]}" parallel.pipeline_model_parallel_size=2 \
    'parallel.pipeline_model_parallel_layout="Et|ttL"' >"$place/out" 2>&1 && {
    echo "FAILED: a second stage that reads deep features"
    exit 1
}
grep -q 'num_deep_features: 2 layers .* layer 1 is in another' "$place/out" || {
    cat "$place/out"
    exit 1
}
# GLM-4.1V: norms on both sides of what layers add, a block's convolution and a
# gated feed-forward behind it; bounds of two frames.
model=glm4v_train
sed -i 's/Qwen2VL/Glm4v/; s/: 64/: 128/; s/: 384/: 768/' \
    "$place/preprocessor_config.json"
also 1 1
also 1 21 model.image_encoder.freeze=true train.micro_batch_size=1
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
also 2 1 "${packed[@]}" ${e}context_parallel_size=2
also 4 1 parallel.$t=2 parallel.sequence_parallel=true ${e}$t=2 \
    model.image_projector.parallel.$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2
sed -i 's/Glm4v/Qwen2VL/; s/: 128/: 64/; s/: 768/: 384/' \
    "$place/preprocessor_config.json"
# MoonViT: pairs of neighbours are turned; one frame a patch.
model=kimi_k25_train
sed -i 's/"temporal_patch_size": 2/"temporal_patch_size": 1/' \
    "$place/preprocessor_config.json"
also 1 1
also 1 21 model.image_encoder.freeze=true
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
also 2 1 parallel.$t=2 ${e}$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.$t=2
also 2 1 $c=2 $k=p2p
# RICE: a class token for each picture, which turns by learned angles.
model=llavaonevision1_5_train
steps 1 1
also 1 21 model.image_encoder.freeze=true
also 2 1 ${e}context_parallel_size=2 $c=2
also 4 1 ${e}$t=2 ${e}sequence_parallel=true ${e}pipeline_model_parallel_size=2
# SigLIP 2: positions with antialias, pictures of up to so many patches.
model=siglip2_train
echo '{"image_processor_type": "Siglip2ImageProcessor", "patch_size": 4,
    "max_num_patches": 20}' >"$place/preprocessor_config.json"
steps 1 1
also 1 21 model.image_encoder.freeze=true
also 2 1 ${e}context_parallel_size=2
also 4 1 ${e}$t=2 ${e}sequence_parallel=true ${e}pipeline_model_parallel_size=2
echo '{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
    "merge_size": 2, "temporal_patch_size": 1,
    "size": {"shortest_edge": 64, "longest_edge": 384}}' \
    >"$place/preprocessor_config.json"
# MiniCPM-V 4.6: the last of three layers has a quarter of the rows, in stages
# and context parallel too; in mode 4x all have all.
model=minicpmv4_6_train
cuts=$place/preprocessor_config.json
sed -i 's/"merge_size": 2/"merge_size": 4/; s/64, "l/512, "l/; s/384/1536/' "$cuts"
also 1 1
also 1 21 model.image_encoder.freeze=true recompute.granularity=full
also 4 1 ${e}pipeline_model_parallel_size=2 ${e}$t=2 \
    ${e}sequence_parallel=true model.image_projector.parallel.$t=2 \
    model.image_projector.parallel.sequence_parallel=true
also 4 1 ${e}context_parallel_size=2 ${e}$t=1 parallel.$t=2 \
    parallel.data_parallel_sharding=optim_grads_params
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 join=phases
also 4 1 join=bubbles parallel.pipeline_model_parallel_size=2
sed -i 's/"merge_size": 4/"merge_size": 2/; s/512, "l/64, "l/; s/1536/384/' "$cuts"
also 1 41 model.image_encoder.use_merger=false
also 2 61 model.image_encoder.use_merger=false model.image_encoder.freeze=true \
    ${e}$t=2 ${e}sequence_parallel=true
# Its own processor: whole pictures and slices of other sizes, between tokens.
golden=minicpmv4_6_slices_train
mkdir "$place/slices"
more='' id=15
for token in {,/}image {,/}slice {,/}image_id; do
    more+=", {\"id\": $((id++)), \"content\": \"<$token>\", \"special\": true}"
done
sed -e "s|}],\$|}$more],|" -e 's|"j": 11|&, "0": 12, "1": 13, "\\n": 14|' \
    "$place/tokenizer.json" >"$place/slices/tokenizer.json"
echo '{"image_processor_type": "MiniCPMV4_6ImageProcessor", "patch_size": 4,
    "scale_resolution": 24, "max_slice_nums": 3}' >"$place/slices/cuts.json"
before=("${keys[@]}") plain=$texts
texts="{path: $place/texts.jsonl, source: chat}"
keys=(data.tokenizer="$place/slices" data.seq_length=64 data.max_patches=640
    "data.image_processor=$place/slices/cuts.json" data.chat.cache="$place/cache"
    model.foundation.vocab_size=21 model.foundation.max_position_embeddings=64)
also 1 1
also 1 21 model.image_encoder.freeze=true recompute.granularity=full
steps 4 1 ${e}pipeline_model_parallel_size=2 ${e}$t=2 \
    ${e}sequence_parallel=true model.image_projector.parallel.$t=2 \
    model.image_projector.parallel.sequence_parallel=true
also 4 1 ${e}context_parallel_size=2 parallel.context_parallel_size=2 \
    parallel.data_parallel_sharding=optim_grads_params join=phases
also 4 1 join=bubbles parallel.pipeline_model_parallel_size=2 parallel.$t=2
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3
keys=("${before[@]}") texts=$plain golden=
# Three learned rows of each picture, behind that encoder.
model=perceiver_train
p=model.image_projector.parallel.
also 1 1
also 1 21 model.image_encoder.freeze=true recompute.granularity=full
steps 4 1 ${e}context_parallel_size=2 ${p}$t=4 ${p}sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2 join=phases
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
also 4 1 join=bubbles parallel.pipeline_model_parallel_size=2 ${p}$t=2
also 2 1 data.packing=best_fit data.seq_length=48 data.row_patches=160 \
    data.row_images=8 "~data.max_patches" "~data.max_images" \
    model.foundation.max_position_embeddings=64 train.global_batch_size=5 \
    train.micro_batch_size=1 parallel.pipeline_model_parallel_size=2
# Experts for pictures, positions by turns, a resampler.
model=ernie4_5_vl_train
y=parallel.expert_tensor_parallel_size
steps 1 1
also 1 21 model.image_encoder.freeze=true
also 2 1 "${packed[@]}" parallel.data_parallel_sharding=optim_grads_params
also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
    ${m}foundation.$r=2-3 $x=2 parallel.data_parallel_sharding=optim_grads
also 4 1 $x=2 $y=2 parallel.moe_token_dispatcher_type=allgather join=phases
also 4 1 parallel.pipeline_model_parallel_size=2 $x=2 join=bubbles
also 4 1 $x=2 parallel.$t=2 parallel.sequence_parallel=true ${e}$t=2 \
    model.image_projector.parallel.$t=2 ${e}sequence_parallel=true \
    model.image_projector.parallel.sequence_parallel=true \
    parallel.pipeline_model_parallel_size=2
# Pictures, videos and texts, in a row each and several in a row (the golden of
# vl_video_train.py).
if [ -e "$build/libloong_video.so" ]; then
    . "$source/tests/train/texts_with_videos.sh"
    write_videos "$source" "$place"
    texts="{path: $place/texts.jsonl, source: chat}"
    sed -i 's/"temporal_patch_size": 1/"temporal_patch_size": 2/' \
        "$place/preprocessor_config.json"
    cut='"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2,
        "min_frames": 2, "max_frames": 8, "do_sample_frames": true'
    keys=("data.image_processor=$place/preprocessor_config.json"
        "data.video_processor=$place/videos.json" model.foundation.vocab_size=34
        model.foundation.max_position_embeddings=192 data.seq_length=96
        data.max_images=4 data.max_patches=160 train.global_batch_size=8
        data.chat.cache="$place/cache")
    shared=(data.packing=best_fit data.seq_length=192 data.row_patches=192
        data.row_images=6 "~data.max_patches" "~data.max_images"
        train.global_batch_size=2 train.micro_batch_size=1)
    model=qwen2_5_vl_train golden=qwen2_5_vl_video_train
    echo '{"video_processor_type": "Qwen2VLVideoProcessor", "fps": 2, "size":
        {"shortest_edge": 64, "longest_edge": 384},' "$cut}" >"$place/videos.json"
    also 1 1
    steps 2 1 "${shared[@]}" $c=2 $k=p2p
    also 2 1 "${shared[@]}"
    # A tower for pictures and one for videos.
    model=two_encoders_train golden=two_encoders_video_train
    keys+=(data.max_videos=4 data.max_video_patches=160)
    also 1 1
    also 2 1 "${shared[@]}" "~data.max_videos" "~data.max_video_patches"
    also 4 1 ${m}{image_encoder,image_projector}.$r=0-1 parallel.$t=2 \
        ${m}{video_encoder,video_projector}.$r=2-3 join=phases \
        parallel.data_parallel_sharding=optim_grads_params
    steps 4 1 parallel.pipeline_model_parallel_size=2 join=bubbles \
        ${m}video_encoder.train.micro_batch_size=1 ${e}$t=2
    keys=("${keys[@]:0:${#keys[@]}-2}")
    model=qwen3_vl_train golden=qwen3_vl_video_train
    echo '{"video_processor_type": "Qwen3VLVideoProcessor", "fps": 1.5, "size":
        {"shortest_edge": 128, "longest_edge": 4096},' "$cut}" \
        >"$place/videos.json"
    also 1 1
    also 2 1 "${shared[@]}"
    also 4 1 "${shared[@]}" $c=2 parallel.$t=2
    also 4 1 parallel.$t=2 ${e}$t=2 ${e}sequence_parallel=true \
        ${m}image_projector.parallel.$t=2 \
        ${m}image_projector.parallel.sequence_parallel=true \
        parallel.pipeline_model_parallel_size=2
    model=glm4v_train golden=glm4v_video_train
    write_videos "$source" "$place" '<|begin_of_image|>' '<|end_of_image|>'
    sed -i 's/Qwen2VL/Glm4v/; s/: 64/: 128/; s/: 384/: 768/' \
        "$place/preprocessor_config.json"
    sed -i 's/Qwen3VL/Glm4v/; s/"min_frames.*8, //' "$place/videos.json"
    keys+=(model.foundation.vocab_size=36)
    also 1 1
    also 2 1 "${shared[@]}"
    steps 4 1 parallel.$t=2 ${e}$t=2 ${e}sequence_parallel=true \
        ${m}image_projector.parallel.$t=2 \
        ${m}image_projector.parallel.sequence_parallel=true \
        parallel.pipeline_model_parallel_size=2
    write_videos "$source" "$place"
    keys+=(model.foundation.vocab_size=34)
    # ERNIE 4.5 VL: two frames become one row, no time is drawn into them.
    model=ernie4_5_vl_train golden=ernie4_5_vl_video_train
    sed -i 's/Glm4v/Ernie4_5_VLMoe/; s/: 128/: 64/; s/: 768/: 384/
        s/"temporal_patch_size": 2/"temporal_patch_size": 1/' \
        "$place/preprocessor_config.json"
    echo '{"video_processor_type": "Ernie4_5_VLMoeVideoProcessor", "fps": 1.8,
        "draw_on_frames": false, "size": {"shortest_edge": 64, "longest_edge":
        384},' "$cut}" >"$place/videos.json"
    ids=('data.vision_token_ids=[1,2,4]' data.max_patches=240)
    also 1 1 "${ids[@]}"
    steps 2 1 "${ids[@]}" "${shared[@]}" data.row_patches=240 $x=2
    also 4 1 "${ids[@]}" $x=2 join=phases \
        parallel.pipeline_model_parallel_size=2 ${e}$t=2
    # Rows of frames are pooled, and one learned row ends a video.
    model=llava_onevision_train golden=llava_onevision_video_train
    size='"size": {"height": 12, "width": 12}'
    echo '{"image_processor_type": "LlavaOnevisionImageProcessor",' "$size," \
        '"image_grid_pinpoints": [[12, 12], [36, 36], [72, 36], [24, 24]]}' \
        >"$place/preprocessor_config.json"
    echo '{"video_processor_type": "LlavaOnevisionVideoProcessor",' "$size," \
        '"num_frames": 3, "do_sample_frames": true}' >"$place/videos.json"
    keys+=(model.image_encoder.image_size=12 data.seq_length=128
        data.max_patches=360)
    steps 1 1
    also 2 1 "${shared[@]}" data.seq_length=256 data.row_patches=400 \
        model.foundation.max_position_embeddings=256
    also 4 1 ${m}image_encoder.$r=1-2 ${m}image_projector.$r=0 \
        ${m}foundation.$r=2-3 parallel.data_parallel_sharding=optim_grads_params
    # Kimi-K2.5: chunks of three frames, the last one of fewer, and their mean;
    # pictures that are made smaller and filled up to whole blocks.
    model=kimi_k25_train golden=kimi_k25_video_train
    write_videos "$source" "$place" m v : '|' _
    cut='"size": {"max_height": 16, "max_width": 16}, "patch_size": 4,
        "merge_size": 2'
    echo '{"image_processor_type": "Kimi_K25ImageProcessor",
        "max_patches": 25,' "$cut}" >"$place/preprocessor_config.json"
    echo '{"video_processor_type": "Kimi_K25VideoProcessor", "fps": 2,
        "max_patches": 40, "temporal_patch_size": 3,' "$cut}" \
        >"$place/videos.json"
    keys+=(model.foundation.vocab_size=39 data.seq_length=272
        model.foundation.max_position_embeddings=272 data.max_patches=320
        model.image_encoder.chunk_frames=3 model.image_encoder.image_size=0)
    also 1 1 recompute.granularity=full
    also 1 21 model.image_encoder.freeze=true
    also 4 1 ${e}pipeline_model_parallel_size=2 ${e}context_parallel_size=2 \
        ${m}foundation.ranks=0-1 join=phases
    steps 2 1 ${e}$t=2 ${e}sequence_parallel=true parallel.$t=2 \
        ${m}image_projector.parallel.$t=2 \
        ${m}image_projector.parallel.sequence_parallel=true
    # MiniCPM-V 4.6: each frame whole and in slices.
    model=minicpmv4_6_train golden=minicpmv4_6_video_train
    write_videos "$source" "$place" '<'{,/}image'>' '<'{,/}slice'>' \
        '<'{,/}image_id'>'
    echo '{"image_processor_type": "MiniCPMV4_6ImageProcessor", "patch_size": 4,
        "scale_resolution": 24, "max_slice_nums": 3}' \
        >"$place/preprocessor_config.json"
    echo '{"video_processor_type": "MiniCPMV4_6VideoProcessor", "patch_size": 4,
        "scale_resolution": 8, "max_slice_nums": 3}' >"$place/videos.json"
    keys=("${keys[@]:0:2}" model.foundation.vocab_size=40 data.max_images=4
        model.foundation.max_position_embeddings=160 data.seq_length=160
        data.max_patches=1280 train.global_batch_size=8
        data.chat.cache="$place/cache")
    also 1 1
    also 1 21 model.image_encoder.freeze=true
    also 4 1 ${e}pipeline_model_parallel_size=2 ${e}context_parallel_size=2 \
        ${m}foundation.ranks=0-1 join=phases
fi
echo "$runs layouts, $count steps each, twenty of the first model"
