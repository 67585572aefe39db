#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# loong-data tokenizer train, encode and decode from outside.
# usage: data_tokenizer.sh PATH/TO/loong-data SOURCE_DIR
set -u
tool=$(readlink -f "$1")
source=$(readlink -f "$2")
. "$(dirname "$(readlink -f "$0")")/expect.sh"
fixtures=$source/tests/fixtures/tokenizer
tokenizer() { "$tool" tokenizer "$@"; }
encode() { tokenizer encode --tokenizer "$@"; }
decode() { tokenizer decode --tokenizer "$@"; }
from() { # FILE COMMAND...
    local file=$1
    shift
    "$@" < "$file"
}

# What is typed wrong.
expect 0 "usage: loong-data tokenizer train" tokenizer --help
expect 0 "--min-frequency" tokenizer train --help
expect 2 "train, encode or decode is missing" tokenizer
expect 2 "'frob': must be train, encode or decode" tokenizer frob
expect 2 "--tokenizer FILE is missing" tokenizer encode
expect 2 "unrecognized option" encode bytes --skip-special
expect 2 "unrecognized option" decode bytes --add-special
expect 2 "one PATH is expected, found 2" encode bytes a b
expect 66 "'nowhere.json' does not exist" encode nowhere.json
expect 66 "cannot open 'nowhere.txt'" encode bytes nowhere.txt
expect 66 "cannot open 'nowhere.txt'" decode bytes nowhere.txt
expect 74 "Is a directory" encode bytes /
head -c 5000 "$fixtures/llama3.json" > cut.json
expect 1 "cut.json" encode cut.json /dev/null
printf '{"model": {"type": "Unigram", "vocab": []}}' > unigram.json
expect 1 "Unigram" encode unigram.json /dev/null
expect 73 "writing: No space left" \
    sh -c "echo text | '$tool' tokenizer encode --tokenizer bytes > /dev/full"

# There and back: every byte-level shape, UTF-8 of every width, blanks of all
# kinds, a NUL, a long word, no text at all.
{
    printf ' caf\u00e9 \u4f60\u597d\U1f600 don'"'"'t\t\r\n\n  x\u00a0\u3000y 12345\0z\n'
    cat "$source"/README.md
    head -c 300000 /dev/zero | tr '\0' w
} > text
: > nothing
for name in gpt2 llama3 deepseek o200k digits; do
    for file in text nothing; do
        encode "$fixtures/$name.json" $file > ids
        from ids decode "$fixtures/$name.json" > back
        cmp -s $file back || failed "$name: $file is not what came back"
        from $file encode "$fixtures/$name.json" | cmp -s - ids ||
            failed "$name: $file as a file and as standard input differ"
        decode "$fixtures/$name.json" ids | cmp -s - back ||
            failed "$name: ids as a file and as standard input differ"
    done
done

# Bytes that are no UTF-8: as they are in bytes, U+FFFD elsewhere, one for
# each longest beginning of a character.
printf 'a\xffb\xe4\xbdc\xf0\x9f\x98\xc0\xaf\xed\xa0\x80' > broken
encode bytes broken | decode bytes | cmp -s - broken ||
    failed "the byte tokenizer changes bytes"
printf 'a\ufffdb\ufffdc\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd' > repaired
encode "$fixtures/llama3.json" broken | decode "$fixtures/llama3.json" |
    cmp -s - repaired || failed "broken bytes are not U+FFFD"

# Special tokens: found in text, added by the template, left out again.
printf 'hi' > hi
[ "$(encode "$fixtures/llama3.json" --add-special hi | head -n 1)" = 0 ] ||
    failed "--add-special: no <s> in front"
[ "$(printf '<s>hi' | encode "$fixtures/llama3.json")" = \
    "$(encode "$fixtures/llama3.json" --add-special hi)" ] ||
    failed "<s> in the text is not the token"
printf '<s>hi</s>' | encode "$fixtures/llama3.json" > ids
expect 0 "<s>hi</s>" decode "$fixtures/llama3.json" ids
[ "$(decode "$fixtures/llama3.json" --skip-special ids)" = hi ] ||
    failed "--skip-special leaves something"

# Ids that are none.
refuse_ids() { # TEXT MESSAGE
    printf '%s' "$1" > ids
    expect 1 "$2" decode "$fixtures/llama3.json" ids
}
refuse_ids '1 2 three' "'three' (number 3) is no id"
refuse_ids '1,-2' "'-2' (number 2) is no id"
refuse_ids '1 2.5' "(number 2) is no id"
refuse_ids '99999999999' "(number 1) is no id"
refuse_ids '1 420' "420"
printf '1\0002' > ids
expect 1 "(number 1) is no id" decode bytes ids

# Training.
train() { tokenizer train --output mine.json "$@"; }
docs=("$source"/docs/*.md)
expect 2 "--output FILE is missing" tokenizer train a
expect 2 "--output FILE is missing" tokenizer train --output '' a
expect 2 "loong-data tokenizer train: invalid option -- 'o'" \
    tokenizer train -o mine.json a
expect 2 "loong-data tokenizer train --help lists the options" train -o a
expect 2 "a file or directory is missing" train
expect 2 "must be a whole number from 257" train --vocab-size 256 a
expect 2 "must be a whole number from 1" train --min-frequency 0 a
expect 2 "must be gpt2, qwen2 or llama3" train --pretokenizer bert a
expect 66 "'nowhere': No such file" train nowhere
expect 2 "--output ./text is 'text', which is to be read" \
    tokenizer train --output ./text nothing text
mkdir made
expect 73 "cannot write 'made/': it is a directory" \
    tokenizer train --output made/ text
touch file
expect 73 "cannot write 'file/mine.json'" \
    tokenizer train --output file/mine.json "${docs[@]}"
expect 1 "no text" train nothing
[ ! -e mine.json ] || failed "a failed training leaves a file"
for kind in gpt2 qwen2 llama3; do
    expect 0 "mine.json: 1000 tokens from ${#docs[@]} documents" train \
        --vocab-size 1000 --pretokenizer $kind --special '<a>' --special '<b>' \
        "${docs[@]}"
    cp mine.json first.json
    train --vocab-size 1000 --pretokenizer $kind --special '<a>' \
        --special '<b>' "${docs[@]}" > /dev/null
    cmp -s mine.json first.json || failed "$kind: trained twice, two results"
    encode mine.json text | decode mine.json | cmp -s - text ||
        failed "$kind: text is not what came back"
    [ "$(printf '<a><b>' | encode mine.json | tr '\n' ' ')" = "0 1 " ] ||
        failed "$kind: special tokens are not the first ids"
    [ "$(encode mine.json "${docs[0]}" | wc -l)" -lt \
        $(($(stat -c %s "${docs[0]}") * 45 / 100)) ] ||
        failed "$kind: less than 2.2 bytes a token on its own text"
done
printf 'abab' > small
expect 0 "no pair is left that stands 2 times" train --vocab-size 300 small
printf '{"text": "abab"}\n{"text": \n' > lines.jsonl
expect 1 "lines.jsonl:2: column" train lines.jsonl
expect 0 "mine.json: 1 broken lines were left out" \
    train --skip-broken --vocab-size 300 lines.jsonl
expect 0 "258 tokens from 1 documents" \
    train --vocab-size 300 --min-frequency 2 --max-bytes 3 small small

finish
