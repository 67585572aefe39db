#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: chat_train.sh BUILD SOURCE MPIRUN: a fine-tuning on conversations. One
# rank and two have the same losses; a run that is stopped within an epoch goes
# on with the same, on either; a record that cannot be used and a file that was
# changed are told.
set -u
build=$1
source=$2
mpirun=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$place/cache
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
. "$source/tests/train/conversations.sh"
write_conversations "$source" chat
cat >sft.yaml <<'END'
version: 1
training_phase: sft
device: cpu
precision: {params_dtype: fp64}
model: {foundation: {family: llama, num_layers: 2, hidden_size: 32,
  ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 512,
  max_position_embeddings: 128}}
data: {tokenizer: chat/model, train: [chat/chat.jsonl], seq_length: 128}
train: {global_batch_size: 2, train_iters: 6}
optimizer: {lr: 1e-2}
log: {interval: 1}
END
# train NAME RANKS KEY...
train() {
    local name=$1 ranks=$2 start=()
    shift 2
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    "${start[@]}" "$build/loongrun" sft.yaml log.dir="log_$name" "$@" \
        >"$name.out" 2>"$name.err" </dev/null
}
losses() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' \
        "log_$1/metrics.jsonl"
}
# same A B: losses of B are those of A, in the steps that B has.
same() {
    [ -s "log_$2/metrics.jsonl" ] || fail "$2 has no losses"
    awk 'NR == FNR { of[$1] = $2; next }
        { d = of[$1] - $2; if (d * d > 1e-18 || !($1 in of)) bad = 1; n++ }
        END { exit bad || n == 0 }' <(losses "$1") <(losses "$2") ||
        fail "$2 is not as $1: $(losses "$1"; losses "$2")"
}

train one 1 || fail "one rank: $(tail -n 5 one.err)"
[ "$(losses one | wc -l)" = 6 ] || fail "no 6 steps: $(cat log_one/metrics.jsonl)"
train two 2 || fail "two ranks: $(tail -n 5 two.err)"
same one two
grep -q 'chat/chat.jsonl: rendering and tokenising' one.err one.out ||
    fail "it does not say that it tokenises: $(cat one.err)"
! grep -q 'rendering and tokenising' two.err two.out ||
    fail "what was tokenised is not found again"
ls -d cache/libloong/chat-* >/dev/null || fail "nothing is kept"

# Three steps of two are six of the eight samples of an epoch.
train first 1 checkpoint.save=save train.exit_interval=3
[ "$?" = 75 ] || fail "it does not stop: $(tail -n 5 first.err)"
same one first
cp -r save again
train rest 2 checkpoint.save=save checkpoint.load=auto ||
    fail "going on with two ranks: $(tail -n 5 rest.err)"
[ "$(losses rest | head -n 1 | cut -d' ' -f1)" = 4 ] || fail "it begins anew"
same one rest
# A batch that two ranks made of the data stays what it was on one rank, which
# alone would make another of it.
open='~train.global_batch_size ~train.train_iters train.epochs=4
    data.train=[chat/sharegpt.jsonl]'
train derived 2 $open data.chat.date=2020-02-29 checkpoint.save=derived train.exit_interval=1
train on 1 $open checkpoint.save=derived checkpoint.load=auto ||
    fail "a batch of the data, on fewer ranks: $(tail -n 5 on.err)"
grep -qx 'train.global_batch_size: 2 as in the checkpoint, the recipe does not say it' \
    on.out on.err || fail "not told: $(cat on.out on.err)"
grep -q 'data.chat.date: 2020-02-29 as in the checkpoint' on.out on.err ||
    fail "another day on another day: $(cat on.out on.err)"
train day 1 $open checkpoint.save=derived checkpoint.load=auto \
    data.chat.date=2021-01-01 train.epochs=1
grep -q "data.chat.date: 2021-01-01, in the checkpoint's run 2020-02-29" \
    day.out day.err || fail "another day is not told: $(tail -n 5 day.err)"
train ended 1 $open checkpoint.save=derived checkpoint.load=auto train.epochs=1
grep -q 'step 2, train.epochs asks for no more' ended.err ended.out ||
    fail "what asks for no more: $(tail -n 5 ended.err)"
sed -i 's/Yes/No!/' chat/chat.jsonl
train changed 1 checkpoint.save=again checkpoint.load=auto &&
    fail "a file that was changed is not told"
grep -q 'content\|hash' changed.err || fail "$(tail -n 5 changed.err)"

train watched 1 'data.validation=[chat/sharegpt.jsonl]' eval.interval=3 ||
    fail "a validation set: $(tail -n 5 watched.err)"
grep -q 'eval chat/sharegpt.jsonl' watched.out watched.err ||
    fail "no evaluation: $(cat watched.out)"
# A validation set of one sample, on two ranks.
head -n 1 chat/sharegpt.jsonl >chat/single.jsonl
for n in 1 2; do
    train "single$n" $n 'data.validation=[chat/single.jsonl]' \
        train.train_iters=1 ||
        fail "a set of one sample, $n ranks: $(tail -n 5 "single$n.err")"
    grep -ho 'eval chat/single.jsonl | loss [0-9.]*' "single$n".{out,err} \
        >"single$n.losses"
done
cmp single1.losses single2.losses && [ -s single1.losses ] ||
    fail "sets of one sample: $(cat single[12].losses)"
train broken 1 'data.train=[chat/broken.jsonl]' && fail "it runs all the same"
grep -q 'chat/broken.jsonl:9: there is no message' broken.err ||
    fail "the record is not told: $(tail -n 5 broken.err)"
train skipped 1 'data.train=[chat/broken.jsonl]' data.chat.skip_refused=true ||
    fail "skip_refused: $(tail -n 5 skipped.err)"
grep -q '1 of 9 records are refused and left out' skipped.err skipped.out ||
    fail "what is left out is not told"

# An answer that was learned by heart ends where its turn does.
echo '{"messages": [{"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "It is 4."}]}' | tr -d '\n' >chat/four.jsonl
train four 1 "data.train=[chat/four.jsonl]" train.global_batch_size=1 \
    train.train_iters=60 eval.sample.conversations=1 log.interval=60 \
    eval.sample.max_new_tokens=30 ||
    fail "one conversation: $(tail -n 5 four.err)"
cat four.out four.err | grep -a -A 1 '^It is 4\.$' | tail -n 1 |
    grep -q '^finished' ||
    fail "the answer goes on: $(cat four.out four.err | tail -n 12)"
[ $failures = 0 ]
