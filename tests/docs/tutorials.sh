#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: tutorials.sh BUILD SOURCE: the commands of docs/tutorial-lora.md and
# docs/tutorial-sft.md, in their order, on a small model with weights by chance
# and a few conversations.
. "$2/tests/docs/commands.sh"
small_model model
mkdir questions
for i in {1..12}; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"What is $i?\"},
        {\"role\": \"assistant\", \"content\": \"It is $i.\"}]}" | tr -d '\n'
    echo
done >questions/train.jsonl
tail -n 4 questions/train.jsonl >questions/held_out.jsonl
run_commands "$source/docs/tutorial-lora.md" 5
for file in adapter/adapter_model.safetensors merged/model.safetensors \
    second/adapter_config.json; do
    [ -s "$file" ] || fail "no $file"
done
rm -rf log
run_commands "$source/docs/tutorial-sft.md" 5
[ -s tuned/model.safetensors ] || fail "no model is exported"
