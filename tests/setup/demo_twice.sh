#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: demo_twice.sh BUILD SOURCE: `make demo` of a small stand-in for text
# and model, called again and after an interruption: nothing is done twice.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS
export OMP_NUM_THREADS=1
mkdir "$place/corpus"
for file in "$source"/docs/*.md; do
    cp "$file" "$place/corpus/$(basename "$file" .md).rst.txt"
done
demo=$place/demo
model="model.foundation.num_layers=1 model.foundation.hidden_size=64
  model.foundation.ffn_hidden_size=128 model.foundation.num_attention_heads=1
  model.foundation.num_query_groups=1 model.foundation.vocab_size=300"
paths="data.tokenizer=$demo/tokenizer.json data.train='[{path: $demo/text}]'
  checkpoint.save=$demo/checkpoints log.dir=$demo/logs
  export.hf=$demo/huggingface"
steps="train.train_iters=6 optimizer.lr_warmup_iters=1 eval.iters=1
  checkpoint.save_interval=2 data.seq_length=32 eval.sample.max_new_tokens=2"

demo() { # LOG: what is built stays as it is
    timeout 100 make -s -C "$source" -o build demo BUILD="$build" \
        DEMO="$demo" CORPUS="$place/corpus" VOCABULARY=300 STOP_AT=4 \
        OVERRIDES="$(echo $model $paths $steps)" \
        >"$place/$1" 2>&1 || { cat "$place/$1"; exit 1; }
}
fail() {
    echo "FAILED: $1"
    exit 1
}
has() { grep -qF -- "$2" "$place/$1" || { cat "$place/$1"; fail "$1: $2"; }; }

demo first
has first "stopped at step 4 of 6"
has first "resumed from $demo/checkpoints/step_00000004"
has first "finished at step 6 of 6"
has first "exported as a Hugging Face directory"
! grep -q "already there" "$place/first" || fail "first: nothing was there"

touch "$place/mark"
sleep 0.1
began=$SECONDS
demo second
echo "the second call took $((SECONDS - began)) s"
[ "$(grep -c '^--- already there: .*; to begin again: rm -r ' \
    "$place/second")" = 4 ] || { cat "$place/second"; fail "not all there"; }
! grep -q "step" "$place/second" || fail "second: trained again"
changed=$(find "$demo" -newer "$place/mark" -type f)
[ -z "$changed" ] || fail "second: written again: $changed"

# Interrupted after its last checkpoint, or after an earlier one.
rm -r "$demo/huggingface" "$demo/checkpoints/step_00000006"
echo step_00000004 >"$demo/checkpoints/latest"
demo third
has third "going on from the checkpoint step_00000004"
has third "finished at step 6 of 6"
! grep -q "stopped at step" "$place/third" || fail "third: from the start"
rm -r "$demo/huggingface"
demo fourth
has fourth "going on from the checkpoint step_00000006"
has fourth "exported as a Hugging Face directory"
echo "nothing was done twice"
