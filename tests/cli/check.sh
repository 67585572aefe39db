#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: check.sh BUILD SOURCE: loongrun --check and --dry-run tell everything
# that would keep a recipe from running here, in one go, by an exit code.
set -eu
build=$1
source=$2
. "$source/tests/in_place.sh"
export OMP_NUM_THREADS=1

fail() {
    echo "FAILED: $*"
    cat out err
    exit 1
}
run() { # CODE ARGUMENT...
    local code=0 expected=$1
    shift
    "$build/loongrun" "$@" >out 2>err || code=$?
    [ $code = "$expected" ] || fail "$*: exit $code, not $expected"
}
has() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1"; }
hasnt() { ! grep -qF -- "$2" "$1" || fail "\"$2\" in $1"; }

"$build/loong-data" index --tokenizer bytes --quiet --output-prefix text \
    "$source/README.md" >/dev/null
cat >good.yaml <<'YAML'
model:
  foundation: {family: llama, num_layers: 2, hidden_size: 32,
    num_attention_heads: 2, vocab_size: 300, max_position_embeddings: 64}
device: cpu
data: {train: [{path: text}], tokenizer: bytes, seq_length: 32}
train: {micro_batch_size: 2, global_batch_size: 2, train_iters: 3}
optimizer: {lr: 1e-3}
checkpoint: {save: saved, load: auto}
YAML

# It runs, and nothing was written.
run 0 good.yaml --check
has out "parameters: "
has out "check: it can run here"
hasnt out "predicted step"
tokens=$(($(stat -c %s text.bin) / 2))
has out "data: 1 source, "
has out "the run takes 192, 0 validation sets"
run 0 good.yaml --check \
    'data.train=[{path: text, weight: 3}, {path: text, weight: 1}]' \
    train.train_iters=$((tokens / 32)) # twice as many samples as the set has
grep -qE "^   75\.0 % text: [0-9.]+k tokens, 1\.[45][0-9]* epochs$" out ||
    fail "the first source"
grep -qE "^   25\.0 % text: [0-9.]+k tokens, 0\.(49[0-9]*|50*) epochs$" out ||
    fail "the second source"
[ ! -e saved ] || fail "a check wrote"

# Everything at once: keys, types, the family, what is missing, the data, the
# tokenizer, the checkpoint.
cat >bad.yaml <<'YAML'
model: {foundation: {family: lama, hidden_size: 64, num_heads: 4}}
data: {train: [{path: nowhere}, {path: nothere}], tokenizer: missing,
  validation: [{name: a, path: gone}, {name: b, path: left}], seq_length: 32}
train: {global_batch_size: 6, train_iters: abc}
checkpoint: {load: nock}
YAML
for mode in --check --dry-run ""; do # a training as well
    run 2 bad.yaml $mode
    has err "bad.yaml:1: model.foundation.family: found lama"
    has err "bad.yaml:1: unknown key model.foundation.num_heads"
    has err "bad.yaml:4: train.train_iters: found abc, a whole number"
    has err "optimizer.lr: not set, every run needs it"
    has err "'missing' does not exist"
    for name in nowhere nothere gone left; do
        has err "cannot open '$name.idx'"
    done
    has err "'nock' is not a directory"
    has err "wanted by checkpoint.load (bad.yaml:5)"
    ! grep -qE '[a-z]\.c:[0-9]+' err || fail "a position in our code"
done

# One thing each: what a plan alone passes.
run 66 good.yaml --check 'data.train=[{path: a}, {path: text}]'
run 66 good.yaml --dry-run 'data.train=[{path: a}, {path: text}]'
run 66 good.yaml --check data.tokenizer=nowhere
run 2 good.yaml --check model.foundation.vocab_size=200
has err "the tokenizer has 257 ids, the model knows 200"
for mode in --check --dry-run; do # the data's, without a tokenizer
    run 2 good.yaml $mode data.tokenizer=null model.foundation.vocab_size=100
    has err "data 'text' has token id 1"
    has err ": model.foundation.vocab_size must be 1"
done
run 0 good.yaml --check data.tokenizer=null \
    'data.validation=[{name: v, path: text}]'
grep -qE "^  token ids up to 1[0-9]* in ([0-9.]+k) of \1 tokens, with v" out ||
    fail "the largest id is not told"
run 2 good.yaml --check 'model.foundation={}'
has err "an empty one changes nothing: ~model.foundation takes all of it away"
run 0 good.yaml --check model.foundation.window_size=16 \
    model.foundation.rotary_percent=0.5
has err "warning: the model as it is cannot be exported to Hugging Face form: "
has err "(a llama with a sliding window is of model type mistral): 1 problem"
has err "rotary_percent = 0.5: model type mistral has 1"
run 0 good.yaml --check model.foundation.family=minimax_m2 \
    model.foundation.num_experts=4 model.foundation.moe_router_topk=2 \
    model.foundation.ffn_hidden_size=64 model.foundation.moe_ffn_hidden_size=32
has err "moe_ffn_hidden_size = 32: model type minimax_m2 has 64"
run 0 good.yaml --check
hasnt err "exported"
hasnt err "nothing in this run reads it"
run 0 good.yaml --check data.mask_ratio=0.5
has err "data.mask_ratio is set, but nothing in this run reads it"
run 2 good.yaml --dry-run optimizer.lr=null
has err "  optimizer.lr: not set"
run 2 good.yaml --check data.train=null
has err "data.train: 0 sources, a list of 1 to 256 paths wanted"
run 2 good.yaml --check model.foundation.num_layers=null
has err "num_layers: not set, every model needs it"
has err "model.foundation is from good.yaml:2"
run 2 good.yaml --check 'data.train=[{path: text, max_epochs: 1}]' \
    train.train_iters=100000
has err "samples are needed, there are"
run 66 good.yaml --check init.from_hf=nowhere
run 73 good.yaml --check checkpoint.save=/dev/null/place
has err "checkpoint.save: /dev/null/place: /dev/null cannot be written into"
run 73 good.yaml --check checkpoint.save=/proc/x
has err "checkpoint.save: /proc/x: cannot create '/proc/x': "
run 73 good.yaml checkpoint.save=/proc/x
has err "checkpoint.save: /proc/x cannot be made"
run 1 good.yaml --check model.foundation.hidden_size=524288
has out "too little memory: needs"
has err "too little memory: needs"
hasnt out "can run"
cp -r "$source/tests/golden/fixtures/llama3_gqa_tied" hf
head -c 20000 hf/model.safetensors >cut && mv cut hf/model.safetensors
sed 's/^model:/init: {from_hf: hf}/; /foundation/,/num_att/d' good.yaml >hf.yaml
seq 999 >digits.txt # the model knows 97 ids
"$build/loong-data" index --tokenizer bytes --quiet --output-prefix digits \
    digits.txt >/dev/null
run 1 hf.yaml --check data.tokenizer=null 'data.train=[{path: digits}]'
has err "model.safetensors"

# For other machines only the recipe counts.
run 0 good.yaml --check --elsewhere 'data.train=[{path: a}]' data.tokenizer=b \
    model.foundation.hidden_size=524288
has out "check: the recipe can run"
hasnt out "too little memory"
run 0 good.yaml --check --ranks 2 'data.train=[{path: a}]' \
    train.global_batch_size=4
run 2 good.yaml --check --elsewhere train.micro_batch_size=7
run 2 good.yaml --elsewhere
has err "--elsewhere is for --check, --dry-run and --explain"

# Texts with pictures: what a later step would refuse.
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" texts
texts=("$source/tests/golden/llava_train.yaml" --check data.tokenizer=texts)
run 0 "${texts[@]}" 'data.train=[{path: texts/texts.jsonl}]'
run 2 "${texts[@]}" 'data.train=[{path: texts/texts.jsonl}]' data.seq_length=8
has err "texts.jsonl:2: takes 12 rows"
echo '{"text": "a"}' >short.jsonl
run 1 "${texts[@]}" 'data.train=[{path: short.jsonl}]' training_phase=sft
has err "short.jsonl:1: nothing of it is learned: it is one token"
# What fine-tuning sets of adamw alone is not set beside another.
run 0 "${texts[@]}" 'data.train=[{path: texts/texts.jsonl}]' \
    training_phase=sft optimizer.name=sgd
mkdir -p pictures/a
cp "$source/tests/fixtures/images/rgb.png" pictures/a
run 2 "${texts[@]}" 'data.train=[{path: pictures, source: images}]'
has err "its data has something else"
run 2 "${texts[@]}" 'data.train=[{path: texts/texts.jsonl}]' \
    "eval.sample.prompts=['a<picture>b']"
has err "samples no pictures"

# A published encoder's own preprocessing is taken, or told.
cp -r "$source/tests/golden/vision/vit" encoder
size=$(sed -n 's/.*"image_size": *\([0-9]*\).*/\1/p' encoder/config.json)
printf '{"image_processor_type": "ViTImageProcessor", "size": %d}' "$size" \
    >encoder/preprocessor_config.json
cat >pictures.yaml <<'YAML'
init: {from_hf: encoder}
device: cpu
data: {train: [{path: pictures}]}
train: {global_batch_size: 1, train_iters: 1}
optimizer: {lr: 1e-3}
YAML
run 0 pictures.yaml --check
has err "encoder/preprocessor_config.json is not read"
run 0 pictures.yaml --check data.image_processor=encoder/preprocessor_config.json
hasnt err "is not read"
rm encoder/preprocessor_config.json
run 0 pictures.yaml --check
has err "is not there, and data.image_processor names no other file: pictures"
run 2 pictures.yaml --check ++model.image_encoder.num_classes=0
has err "its own keys num_classes or masked_image_modeling"

# What the family sets is shown, as its own.
run 0 good.yaml --print-config
has out "untie_embeddings_and_output_weights: "
has out "  # default of the family"
has out "layernorm_epsilon: 1e-0"

# What newcomers type.
hint() { # OVERRIDE KEY
    run 2 good.yaml "$1"
    has err "did you mean $2?"
}
hint train.micro_batch=2 train.micro_batch_size
hint optimizer.warmup=1 optimizer.lr_warmup_iters
hint 'optimizer.betas=[0.9, 0.95]' optimizer.adam_beta1
hint parallel.tp=2 parallel.tensor_model_parallel_size
hint parallel.zero_stage=1 parallel.data_parallel_sharding
hint precision.dtype=bf16 precision.params_dtype
hint train.num_train_epochs=1 train.epochs
hint data.train.0.weight=3 'data.train[0].weight'
hint 'data.split="969,30,1"' data.validation_split
hint 'data.train[0].split=0.1' data.validation_split
hint --dryrun --dry-run
hint --print_confg --print-config
run 0 --help-config lr
has out "optimizer.lr  "
has out "optimizer.lr_decay_style"
run 0 --help-config warmup
has out "optimizer.lr_warmup_iters"
run 0 --help-config optimizer.ema.decay
has out "from 0 to 0.9999999"
run 2 good.yaml --help-config lr
has err "--help-config goes before a recipe"
run 2 --help-config nonsense
