#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: components.sh BUILD SOURCE MPIRUN [all]: models that read pictures, their
# components on simulated devices of the same ranks and of others, and on a
# processor beside them: two steps (all: six) in fp32 are those of transformers in
# float64 (tests/golden/*_train.txt).
set -eu
build=$1
source=$2
mpirun=$3
all=${4:-}
count=2
[ "$all" != all ] || count=6
runs=0
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1 CUDASIM_DEVICES=4
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place"
e=model.image_encoder p=model.image_projector f=model.foundation
tp=parallel.tensor_model_parallel_size
pp=parallel.pipeline_model_parallel_size

# steps MODEL RANKS [KEY=VALUE...]
steps() {
    local model=$1 ranks=$2 run=("$build/loongrun_cudasim")
    shift 2
    [ "$ranks" = 1 ] || run=("$mpirun" --oversubscribe -n "$ranks" "${run[@]}")
    rm -rf "$place/log"
    sed '/^device:/d' "$source/tests/golden/$model.yaml" >"$place/recipe.yaml"
    "${run[@]}" "$place/recipe.yaml" "data.train=[{path: $place/texts.jsonl}]" \
        "data.tokenizer=$place" "log.dir=$place/log" "train.train_iters=$count" \
        precision.params_dtype=fp32 "$@" >"$place/out" 2>&1 &&
        ! grep '^cudasim:' "$place/out" || {
        cat "$place/out"
        exit 1
    }
    grep -oE '"(loss|grad_norm)":[^,}]*' "$place/log/metrics.jsonl" |
        sed 's/.*://' | paste -d ' ' - - >"$place/got"
    head -n "$count" "$source/tests/golden/$model.txt" |
        paste -d ' ' - "$place/got" | awk -v what="$model, $ranks ranks $*" \
        -v count="$count" '
        function off(a, b) { d = a - b; d = d < 0 ? -d : d; return d > 1e-5 * a }
        NF != 4 || off($1, $3) || off($2, $4) {
            printf "FAILED: %s, step %d: %s\n", what, NR, $0; bad = 1 }
        END { if (NR != count || bad) exit 1 }'
    runs=$((runs + 1))
}
# One of the layouts that are taken when all are.
also() {
    [ "$all" != all ] || steps "$@"
}
also llava_train 4 device=cuda $e.$tp=2 $tp=2 $pp=2
steps llava_train 3 'devices=[cuda:0-1, cpu:2]' $e.ranks=0 $p.ranks=1 $f.ranks=2
also llava_train 3 'devices=[cuda:0-1, cpu:2]' $e.ranks=2 $p.ranks=2 \
    $f.ranks=0-1 $pp=2
steps llava_train 2 device=cuda join=phases $tp=2
also llava_train 2 device=cuda train.cuda_graph_impl=auto $tp=2
also llava_train 2 device=cuda comm.device_backend=staged $tp=2
also llava_train 4 device=cuda $e.ranks=0-1 $p.ranks=0-1 $f.ranks=2-3 $pp=2
pictures="data.image_processor=$place/preprocessor_config.json"
cp "$source/tests/fixtures/images/tall.jpg" "$place/j420.jpg"
echo '{"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": true,
    "size": {"height": 16, "width": 16}, "max_patches": 4}' \
    >"$place/preprocessor_config.json"
also internvl_train 4 device=cuda "$pictures" $e.ranks=1-2 $p.ranks=0 \
    $f.ranks=2-3 parallel.data_parallel_sharding=optim_grads_params
cat >"$place/preprocessor_config.json" <<JSON
{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
"merge_size": 2, "temporal_patch_size": 2,
"size": {"shortest_edge": 64, "longest_edge": 384}}
JSON
also qwen2_vl_train 2 device=cuda "$pictures" $p.$tp=2 $tp=2
also qwen2_5_vl_train 2 'devices=[cuda:0, cpu:1]' "$pictures" $e.ranks=0 \
    $p.ranks=0 $f.ranks=1
also qwen3_vl_train 2 'devices=[cuda:0, cpu:1]' "$pictures" $e.ranks=0 \
    $p.ranks=0 $f.ranks=1
also qwen3_vl_train 4 device=cuda "$pictures" $e.$tp=2 $tp=2 $pp=2
"$build/loongrun_cudasim" "$place/recipe.yaml" --dry-run --ranks 2 \
    "data.train=[{path: $place/texts.jsonl}]" "data.tokenizer=$place" \
    "$pictures" device=cuda precision.params_dtype=fp32 \
    train.cuda_graph_impl=local >"$place/out" 2>&1 && {
    echo "FAILED: graphs of ranks with pictures of their own"
    exit 1
}
grep -q 'train.cuda_graph_impl: local on 2 ranks' "$place/out" || {
    cat "$place/out"
    exit 1
}
# The encoder on one vendor, the language model on another; in fp64, which only
# the processor's kernels take, to the last digit of one rank of it.
export LOONG_XPU_PATH=$build/xpusim SIM_XPU_ODD=1
cp "$source/tests/fixtures/images/j420.jpg" "$place"
also llava_train 2 'devices=[cuda:0, xpu:1]' $e.ranks=0 $p.ranks=0 $f.ranks=1
also llava_train 1 device=cpu precision.params_dtype=fp64
cp "$place/got" "$place/one"
also llava_train 2 'devices=[cuda:0, xpu:1]' $e.ranks=0 $p.ranks=0 $f.ranks=1 \
    precision.params_dtype=fp64 "train.host_ops=[adamw, add, add_layernorm, \
add_rmsnorm, attention, attention_grad, cross_entropy, embedding, \
embedding_grad, gelu, gelu_grad, layernorm, layernorm_grad, linear, linear_dw, \
linear_dw_db, rmsnorm, rmsnorm_grad, rope, rope_table, select_rows, sumsq, \
swiglu, swiglu_grad, zero]"
[ "$all" != all ] || cmp "$place/one" "$place/got"
echo "$runs layouts, $count steps each"
