# SPDX-License-Identifier: Apache-2.0
# write_conversations SOURCE DIRECTORY: files of conversations of several
# formats, and a model's tokenizer and template beside them.
write_conversations() {
    local source=$1 to=$2 n
    mkdir -p "$to" && cp -r "$source/tests/fixtures/chat/chatml" "$to/model"
    for n in 1 2 3 4 5 6 7 8; do
        cat <<END
{"messages": [{"role": "user", "content": "What is $n + $n?"}, {"role": "assistant", "content": "It is $((n + n))."}, {"role": "tool", "content": "$n"}, {"role": "assistant", "content": "Yes."}]}
END
    done >"$to/chat.jsonl"
    for n in 1 2 3 4; do
        echo "{\"prompt\": \"$n \", \"chosen\": \"one\", \"rejected\": \"two\"}"
    done >"$to/pairs.jsonl"
    for n in 1 2 3 4; do
        echo "{\"conversations\": [{\"from\": \"human\", \"value\": \"$n\"}, {\"from\": \"gpt\", \"value\": \"one\"}]}"
    done >"$to/sharegpt.jsonl"
    { cat "$to/chat.jsonl" && echo '{"messages": []}'; } >"$to/broken.jsonl"
}
