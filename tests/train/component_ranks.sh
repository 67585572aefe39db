#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: component_ranks.sh BUILD SOURCE MPIRUN: components on ranks of their
# own. As many replicas elsewhere have the same bits: steps, what is told of
# them, checkpoints, exports, and runs that go on on other ranks; ranks that
# make no sense are refused.
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
tp=parallel.tensor_model_parallel_size
apart=("$e.ranks=[0, 1]" "$j.ranks=0 - 1" $f.ranks=2-3)
told=(train.train_iters=4 checkpoint.save_interval=2 eval.interval=2
    'data.validation=[{name: v, path: rare.jsonl}]'
    'log.tensors=[layers.0.mlp*]' log.tensors_interval=2
    'eval.sample.prompts=[abc,de]' eval.sample.max_new_tokens=3)

# run RANKS NAME [KEY=VALUE...]: checkpoints go to NAME, all that is told of
# steps to NAME.told.
run() {
    local ranks=$1 name=$2 start=()
    shift 2
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    "${start[@]}" "$build/loongrun" "$source/tests/golden/llava_train.yaml" \
        "data.train=[{path: texts.jsonl}]" "data.tokenizer=$place" \
        "checkpoint.save=$name" "log.dir=log.$name" "$@" >"$name.out" 2>&1 || {
        echo "FAILED: $name"
        cat "$name.out"
        exit 1
    }
    { # the line of a save stands where that has ended
        grep -v '"save_bytes"' "log.$name/metrics.jsonl" | grep -oE \
            '"(step|loss|grad_norm|perplexity|expert_load)": ?[^,}]*|"tensor.*'
        grep '^sample' "$name.out" || true
    } >"$name.told"
}
same() {
    cmp -s "$1" "$2" || {
        echo "FAILED: $1 and $2 are not the same"
        diff "$1" "$2" | head -20
        exit 1
    }
}
# refused RANKS TEXT KEY=VALUE...
refused() {
    local ranks=$1 text=$2
    shift 2
    if "$build/loongrun" "$source/tests/golden/llava_train.yaml" --dry-run \
        --ranks "$ranks" "data.tokenizer=$place" "$@" >out 2>&1 ||
        ! grep -qF -- "$text" out; then
        echo "FAILED: $* should be refused: $text"
        cat out
        exit 1
    fi
}

# Rank 0 has no language model, and tells of it.
run 2 all "${told[@]}"
run 4 apart "${told[@]}" "${apart[@]}"
same all.told apart.told
[ "$(grep -c tensor apart.told)" = 12 ] && [ "$(grep -c sample apart.told)" = 4 ]
for name in all apart; do
    "$build/loong-ckpt" export --quiet --component foundation $name out.$name
done
same out.all/model.safetensors out.apart/model.safetensors
"$build/loong-ckpt" diff all/step_00000004 apart/step_00000004 >diff
grep -q 'all values are equal' diff

# Each goes on where the other one was.
run 4 to_apart "${told[@]}" "${apart[@]}" checkpoint.load=all/step_00000002
run 2 to_all "${told[@]}" checkpoint.load=apart/step_00000002
for name in to_apart to_all; do
    "$build/loong-ckpt" diff all/step_00000004 $name/step_00000004 >diff
    grep -q 'all values are equal' diff
done

# Experts of a language model that rank 0 has not; what their routers choose is
# recorded and replayed.
moe=(train.train_iters=3 $f.family=qwen3_moe $f.num_experts=4
    $f.moe_ffn_hidden_size=12 $f.moe_router_topk=2)
run 1 experts "${moe[@]}" router_replay.record_file=one
run 4 experts_apart "${moe[@]}" "${apart[@]}" $tp=2 \
    parallel.sequence_parallel=true parallel.expert_model_parallel_size=2 \
    router_replay.record_file=two
same experts.told experts_apart.told
cmp one two
run 4 replayed "${moe[@]}" "${apart[@]}" router_replay.replay_file=one
same <(grep -v load experts.told) <(grep -v load replayed.told)

refused 4 "$e.ranks: found '7', rank 7, those of this job are 0 to 3" $e.ranks=7
refused 4 "$e.ranks: found '', wanted ranks as in 0-3" "$e.ranks=''"
refused 4 "$j.ranks: found '1-0', wanted ranks as in 0-3" $j.ranks=1-0
refused 4 "$f.ranks: found '0,1,', wanted ranks as in 0-3" "$f.ranks='0,1,'"
refused 4 "$f.ranks: found '0-2,1', rank 1 stands there twice" $f.ranks=0-2,1
refused 4 'model: rank 2 of 4 has no component' $e.ranks=0 $j.ranks=1 \
    $f.ranks=0,3
refused 4 "3 ranks of $e.ranks; multiples of 2 fit" $e.ranks=0-2 $e.$tp=2
refused 4 "3 ranks of $f.ranks; multiples of 2 fit" $f.ranks=0-2 $tp=2
refused 4 'overlap_moe_expert_parallel_comm: does not go with a model of' \
    parallel.overlap_moe_expert_parallel_comm=true
refused 4 'sft is training on conversations' training_phase=sft \
    ~model.image_projector ~model.foundation ~data.seq_length
"$build/loongrun" "$source/tests/golden/llava_train.yaml" --dry-run \
    "data.tokenizer=$place" "data.train=[{path: texts.jsonl}]" finetune=lora >out 2>&1 || {
    echo "FAILED: adapters of a model that reads pictures"
    cat out
    exit 1
}
refused 4 'possible on 3 ranks' $f.ranks=1- $tp=2
refused 4 'possible on 4 ranks' $e.ranks=0-1 $tp=3
refused 4 '24 is no multiple of 15 (train.micro_batch_size 5 x 3 data-' \
    $f.ranks=1- train.micro_batch_size=5
echo "components on ranks of their own"
