#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: odd_recipes.sh BUILD SOURCE MPIRUN: recipes as editors, other systems
# and tired people leave them. Each works as the plain one does, or is refused
# with its place and exit code 2; docs/faults.md lists them.
set -u
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
export OMP_NUM_THREADS=1
failures=0
cases=0

# judge CODE GOT TEXT WHAT
judge() {
    cases=$((cases + 1))
    if [ "$2" != "$1" ] || ! grep -qF -- "$3" out err; then
        printf 'FAILED: %s: exit %s, not %s, or no "%s"\n' "$4" "$2" "$1" "$3"
        tail -n 6 out err
        failures=$((failures + 1))
    fi
}

# works FILE ARGUMENTS...: and trains as the plain recipe does
works() {
    local got=0
    timeout -k 5 60 "$build/loongrun" "$@" >out 2>err || got=$?
    judge 0 $got "finished at step 2 of 2 | 512 tokens | loss $loss," "$*"
}

# refused TEXT FILE ARGUMENTS...
refused() {
    local got=0 text=$1
    shift
    timeout -k 5 60 "$build/loongrun" "$@" >out 2>err || got=$?
    judge 2 $got "$text" "$*"
}

# ranks N CODE TEXT ARGUMENTS...: of the plain recipe
ranks() {
    local got=0 n=$1 code=$2 text=$3
    shift 3
    timeout -k 5 60 "$mpirun" --oversubscribe -n "$n" "$build/loongrun" \
        plain.yaml "$@" >out 2>err || got=$?
    judge "$code" $got "$text" "$n ranks: $*"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >plain.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 1
    hidden_size: 32
    ffn_hidden_size: 64
    num_attention_heads: 2
    vocab_size: 257
    max_position_embeddings: 64
data: {seq_length: 64, train: [{path: text}]}
train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 2}
optimizer: {lr: 1e-3}
device: cpu
YAML
"$build/loongrun" plain.yaml >out 2>err ||
    { cat err; exit 1; }
loss=$(sed -n 's/^finished .* | loss \([0-9.]*\),.*/\1/p' out)

# ---- how the text is written ----
printf '\357\273\277' | cat - plain.yaml >bom.yaml
works bom.yaml
sed 's/$/\r/' plain.yaml >crlf.yaml
works crlf.yaml
{ printf '\377\376' && iconv -f UTF-8 -t UTF-16LE plain.yaml; } >utf16.yaml
works utf16.yaml
printf '%s' "$(cat plain.yaml)" >no_newline.yaml
works no_newline.yaml
{ printf '%%YAML 1.1\n---\n' && cat plain.yaml && printf '...\n'; } >marks.yaml
works marks.yaml
sed 's/num_layers: 1/num_layers: \&one 1/
     s/micro_batch_size: 2, /micro_batch_size: *one, /' plain.yaml >alias.yaml
works alias.yaml train.micro_batch_size=2
"$build/loongrun" alias.yaml --print-config >out 2>err
judge 0 $? "micro_batch_size: 1" "the value of an alias"
works "$PWD/../${PWD##*/}/plain.yaml"

# spoil NAME PRINTF_TEXT: the plain recipe and a line 14
spoil() { { cat plain.yaml && printf "$2"; } >"$1"; }
spoil two.yaml 'name: a\n---\nname: b\n'
refused "two.yaml:16:1: a second document in one file" two.yaml
spoil twice.yaml 'device: cpu\n'
refused "twice.yaml:14:1: key device is there twice" twice.yaml
spoil merge.yaml 'log: &l {interval: 1}\neval:\n  <<: *l\n'
refused "merge.yaml:16:3: a merge key (<<)" merge.yaml
spoil tag.yaml 'seed: !!int 5\n'
refused "tag.yaml:14:7: a tag (!...)" tag.yaml
spoil lone.yaml 'name: *nobody\n'
refused "lone.yaml:14:7: an alias without its anchor" lone.yaml
spoil latin1.yaml 'name: caf\351 noir\n'
refused "latin1.yaml:14:11: invalid trailing UTF-8 octet" latin1.yaml
spoil nul.yaml 'name: a\000b\n'
refused "nul.yaml:14:8: control characters are not allowed" nul.yaml
sed 's/^    num_layers/\tnum_layers/' plain.yaml >tab.yaml
refused "tab.yaml:4:1: found a tab character" tab.yaml
sed '12s/}$//' plain.yaml >half.yaml
refused "half.yaml:13:7: did not find expected ',' or '}'" half.yaml
many() { printf "%.0s$1" $(seq "$2"); }
spoil deep.yaml "name: $(many '[' 5000)"
refused "deep.yaml:14:71: nested deeper than 64" deep.yaml
{ echo 'a0: &a0 [x]' && for i in $(seq 30); do
    echo "a$i: &a$i [$(many "*a$((i - 1))," 9)]"
done; } >bomb.yaml
refused "more than 200000 nodes" bomb.yaml
: >empty.yaml
refused "empty.yaml:1: no keys in it" empty.yaml
printf '# nothing\n---\n' >comment.yaml
refused "comment.yaml:3: a recipe is a map of keys" comment.yaml
echo '- name: x' >list.yaml
refused "list.yaml:1: a recipe is a map of keys" list.yaml
echo 'name' >text.yaml
refused "text.yaml:1: a recipe is a map of keys" text.yaml
mkdir folder.yaml
refused "folder.yaml is a directory, a recipe file wanted" folder.yaml
head -c 4096 "$build/loongrun" >binary.yaml
refused "binary.yaml:1:" binary.yaml

# ---- numbers ----
works plain.yaml train.train_iters=2e0
works plain.yaml train.train_iters=0x2
works plain.yaml train.train_iters=0.002k
refused "train.train_iters: found 2.5, a whole number" plain.yaml \
    train.train_iters=2.5
for huge in 9223372036854775807 1e18 123456789012345678901234567890; do
    refused "seed: found $huge, allowed 0 to 9e+15" plain.yaml seed=$huge
done
refused "seed: found -1, allowed 0 to 9e+15" plain.yaml seed=-1
refused "seed: found 1e400, a whole number wanted" plain.yaml seed=1e400
refused "seed: found .inf, a whole number wanted" plain.yaml seed=.inf
refused "optimizer.lr: found nan, a number wanted" plain.yaml optimizer.lr=nan
refused "seed: found 1_000, a whole number wanted" plain.yaml seed=1_000
refused "device: found yes, allowed: auto cpu xpu cuda" plain.yaml device=yes
lora='finetune.method=lora training_phase=pretrain model.foundation.family=qwen2'
refused "export.merge: the adapter of embed_tokens cannot be merged" plain.yaml \
    $lora finetune.target_modules=[embed_tokens] export.merge=true \
    export.hf=merged checkpoint.save=saved \
    model.foundation.untie_embeddings_and_output_weights=false
refused "target_modules where finetune.bias is lora_only" plain.yaml $lora \
    finetune.target_modules=[q_proj,v_proj] finetune.bias=lora_only

# ---- sizes at the edge ----
ranks 1 0 "finished at step 2 of 2 | 8 tokens" data.seq_length=1
ranks 1 0 "finished at step 2 of 2 | 2 tokens" data.seq_length=1 \
    train.micro_batch_size=1 train.global_batch_size=1
ranks 1 0 "finished at step 2 of 2 | 512 tokens" train.micro_batch_size=1
ranks 1 0 "finished at step 2 of 2 | 512 tokens" \
    model.foundation.hidden_size=2 model.foundation.num_attention_heads=1
ranks 1 2 "rotary dimension 33 (kv_channels x rotary_percent) is odd" \
    model.foundation.hidden_size=33 model.foundation.num_attention_heads=1
ranks 1 2 "rotary dimension 0 (kv_channels x rotary_percent) is too small" \
    model.foundation.rotary_percent=0.01
ranks 1 2 "num_layers: found 0, allowed 1 to 10000" \
    model.foundation.num_layers=0
ranks 3 0 "finished at step 2 of 2 | 768 tokens" train.global_batch_size=6
ranks 5 0 "finished at step 2 of 2 | 640 tokens" train.global_batch_size=5 \
    train.micro_batch_size=1
ranks 3 2 "plain.yaml:11: train.global_batch_size: 4 is no multiple of 6"
ranks 5 2 "global_batch_size: 6 is no multiple of 5 (train.micro_batch_size 1" \
    train.global_batch_size=6 train.micro_batch_size=1
ranks 3 2 "pipeline_model_parallel_size 3: the model has 1 layers to cut" \
    parallel.pipeline_model_parallel_size=3

echo "$cases cases, $failures failures"
[ $failures = 0 ]
