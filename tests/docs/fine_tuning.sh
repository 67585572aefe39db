#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: fine_tuning.sh BUILD SOURCE: the commands of docs/fine-tuning.md, in
# their order, on a small model with weights by chance.
. "$2/tests/docs/commands.sh"
small_model model
doc=$source/docs/fine-tuning.md
run_commands "$doc" 6
# What the text says that they show.
said=$(awk -v RS='```' 'NR % 2 == 0 && /^\nchat/ { print }' "$doc" | grep .)
grep -qF "$said" block02.sh.out || fail "not shown: $said: $(cat block02.sh.out)"
grep -q '^+ 4\.<|im_end|>$' block02.sh.out || fail "$(cat block02.sh.out)"
grep -q '^chat.jsonl: openai, 3 records$' block03.sh.out ||
    fail "$(cat block03.sh.out)"
for line in "data: 1 source, 104 tokens; the run takes 312, 0 validation sets" \
    "    3 samples, 104 tokens, 14 learned, the longest 45" \
    "  3 epochs are 3 rows, 2 steps; the last one has 1 of 2"; do
    grep -qxF "$line" block06.sh.out || fail "not shown: $line"
    grep -qxF "$line" "$doc" || fail "not told: $line"
done
for word in '3 samples, ' 'sample | ' 'step 3/3'; do
    grep -qF "$word" block04.sh.out || fail "no '$word': $(cat block04.sh.out)"
done
[ "$(grep -cF 'sample | ' block04.sh.out)" = 2 ] || fail "$(cat block04.sh.out)"
ls tuned/adapter_model.safetensors tuned.checkpoints/latest >/dev/null
