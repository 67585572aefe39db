#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: data_chat.sh LOONG_DATA SOURCE: loong-data chat as a person types it.
set -u
tool=$1
model=$2/tests/fixtures/chat/generation
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export XDG_CACHE_HOME=$place/cache
failures=0
# expect CODE TEXT ARGUMENT...: the exit code, and a line that is like the text.
expect() {
    local code=$1 text=$2 found=0
    shift 2
    "$tool" chat "$@" >out 2>err </dev/null || found=$?
    if [ $found != "$code" ] || ! grep -qE -- "$text" out err; then
        echo "FAILED: loong-data chat $*: exit $found, expected $code, '$text'"
        head -n 20 out err
        failures=$((failures + 1))
    fi
}
say() { printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$@"; }
{ say Hi there; say 'two
lines' b; say Hi "$(printf 'caf\303\251')"; } >a.jsonl
sed -i 'N;N;s/two\nlines/two\\nlines/' a.jsonl
echo '{"chat": [{"who": "me", "what": "q"}, {"who": "you", "what": "a"}]}' >s.jsonl
expect 0 '^usage: loong-data chat inspect' --help
expect 2 "neither inspect nor check" look a.jsonl
expect 2 '--tokenizer DIR is missing' inspect a.jsonl
expect 2 'one PATH is expected, found 0' check --tokenizer "$model"
expect 2 'did you mean' inspect --tokeniser "$model" a.jsonl
expect 0 '^a.jsonl: openai, 3 records$' inspect --tokenizer "$model" a.jsonl
expect 0 '^a.jsonl:1: [0-9]+ tokens, [0-9]+ learned$' \
    inspect --tokenizer "$model" a.jsonl
expect 0 '^\+ there<\|im_end\|>$' inspect --tokenizer "$model" a.jsonl
expect 0 '^  .*two\\nlines<' inspect --tokenizer "$model" a.jsonl
expect 0 '^[+] caf.*<' inspect --tokenizer "$model" a.jsonl
expect 0 '^\+ +[0-9]+ <\|im_end\|>$' inspect --ids --tokenizer "$model" a.jsonl
expect 0 '^samples: 3, tokens: [0-9]+, learned: [0-9]+ ' \
    check --tokenizer "$model" a.jsonl
! grep -q '^+' out || { echo "FAILED: check shows samples"; failures=1; }
expect 0 '^template: built-in template qwen2.5$' \
    check --template qwen2.5 --tokenizer "$model" a.jsonl
expect 0 '^\+ <\|im_start\|>user' \
    inspect --train-on all --tokenizer "$model" a.jsonl
expect 2 "train_on: 'none'" check --train-on none --tokenizer "$model" a.jsonl
expect 0 '^s.jsonl: sharegpt, 1 records$' inspect --tokenizer "$model" \
    --tag messages=chat --tag role=who --tag content=what --tag user=me \
    --tag assistant=you s.jsonl
expect 1 'of no known format, its keys are' \
    check --tokenizer "$model" s.jsonl
expect 1 "^a.jsonl:1: the record has no 'instruction'" \
    check --format alpaca --tokenizer "$model" a.jsonl
expect 66 'there is no such file' check --tokenizer "$model" none.jsonl
echo "{{ strftime_now('%d %b %Y') }} {{ messages[-1].content }}" >day.jinja
expect 0 '29 Feb 2020 there' inspect --date 2020-02-29 --train-on all \
    --template ./day.jinja --tokenizer "$model" a.jsonl
expect 2 "data.chat.date: found 'today'" check --date today \
    --template ./day.jinja --tokenizer "$model" a.jsonl
# Pictures that are cut off are whole in their heads.
pictures=$2/tests/fixtures/images
{ say '<image>' Hi; say '<image>' Hi; } |
    sed '1s/^{/{"images": ["a.png"], /; 2s/^{/{"images": ["b.png"], /' >p.jsonl
cp "$pictures/rgb.png" a.png
head -c 200 a.png >b.png
decode() { expect "$1" "$2" check "${@:3}" --tokenizer "$model" --image-token \
    '<both>' p.jsonl; }
decode 0 '^samples: 2,'
decode 1 "^p.jsonl:2: b.png: " --decode
cp a.png b.png
decode 0 '^samples: 2,' --decode
[ $failures = 0 ]
