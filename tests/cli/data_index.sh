#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# loong-data index on what people feed it: broken, empty, packed, huge; and
# loong-data inspect on what a full disk or a lost connection leaves.
# usage: data_index.sh PATH/TO/loong-data SOURCE_DIR
set -u
tool=$(readlink -f "$1")
source=$(readlink -f "$2")
. "$(dirname "$(readlink -f "$0")")/expect.sh"
bpe=$source/tests/fixtures/tokenizer/llama3.json
index() { "$tool" index --tokenizer "$bpe" --output-prefix set "$@"; }
same() { # PREFIX: has the data set the bytes of `set`?
    local end
    for end in bin idx; do
        cmp -s "set.$end" "$1.$end" || failed "set.$end differs from $1.$end"
    done
}
text_of() { "$tool" inspect --tokenizer "$bpe" --documents 9 set; }

printf '{"text": "one"}\n{"text": "two"}\n' > good.jsonl
expect 0 "2 documents" index good.jsonl
cp set.bin old.bin
cp set.idx old.idx

# A broken line ends the work, named by file and line, and leaves the old data
# set alone; --skip-broken leaves it out and counts it.
printf '{"text": "one"}\n\n{"text": "cut of\n{"text": "two"}\n' > broken.jsonl
expect 1 "broken.jsonl:3: column 16: " index broken.jsonl
same old
expect 0 "warning: left out: " index --skip-broken broken.jsonl
expect 0 "set: 1 broken lines were left out" index --skip-broken broken.jsonl
same old
while read -r line; do
    printf '{"text": "one"}\n%s\n{"text": "two"}\n' "$line" > line.jsonl
    expect 1 "line.jsonl:2: " index line.jsonl
    expect 0 "set: 1 broken lines were left out" index --skip-broken line.jsonl
    same old
done <<'LINES'
{"text": "half a pair \ud800"}
{"text": "the other half \udc00 alone"}
{"text": null}
{"text": 7}
{"body": "no such key"}
["text"]
"text"
{"text": "one"} {"text": "two in a line"}
{"text": "twice", "text": "twice"}
{'text': 'wrong marks'}
LINES
printf '{"text": "one"}\n{"text": "not \xff UTF-8"}\n{"text": "two"}\n' > line.jsonl
expect 1 "line.jsonl:2: column 14: unable to decode byte 0xff" index line.jsonl
expect 0 "set: 1 broken lines were left out" index --skip-broken line.jsonl
same old

# A file that is one array is as good as lines, however it is laid out.
printf '{"text": "one ] , \\" }"}\n{"text": "two"}\n{"text": "three"}\n' > l.jsonl
expect 0 "3 documents" index l.jsonl
cp set.bin lines.bin
cp set.idx lines.idx
printf '\n [{"text": "one ] , \\" }"},{"a": [1, {"b": 2}],\n "text": "two"}\n\n,
{\n"text":\n"three"} ]\n\n' > array.json
expect 0 "3 documents" index array.json
same lines
gzip -k array.json
expect 0 "3 documents" index array.json.gz
same lines
head -c 300000 /dev/zero | tr '\0' 'a' > long
printf '[{"text": "%s"}, {"text": "two"}]' "$(cat long)" > long.json
expect 0 "2 documents" index long.json
printf '[]' > array.json
expect 1 "token" index array.json
while IFS='|' read -r wrong array; do
    printf "$array" > array.json
    expect 1 "array.json:$wrong" index array.json
done <<'ARRAYS'
1: the file ends inside its array|[{"text": "one"}\n
2: the file ends inside its array|[{"text": "one"},\n{"text": "tw
1: column 17: more behind the value, one is wanted|[{"text": "one"} {"text": "two"}]
1: no value in front of ']'|[{"text": "one"}, ]
1: no value in front of ','|[{"text": "one"}, , {"text": "two"}]
2: text behind the end of the array|[{"text": "one"}]\n{"text": "two"}
2: a string, must be an object|[{"text": "one"},\n"two"]
2: no key 'text'; keys are: 'body'|[{"text": "one"},\n{"body": "two"}]
ARRAYS
printf '[{"text": "one"}, 7, {"text": "two"}]' > array.json
expect 0 "set: 1 broken lines were left out" index --skip-broken array.json
expect 0 "2 documents" index good.jsonl

# A wrong name is answered with the likely one.
expect 2 "did you mean --tokenizer?" "$tool" index --tokeniser x
expect 2 "did you mean index?" "$tool" indx

for n in $(seq 30); do
    printf '{"text": "one"\n'
done | cat - good.jsonl > many.jsonl
expect 0 "set: 30 broken lines were left out" index --skip-broken many.jsonl
[ "$(index --skip-broken many.jsonl 2>&1 | grep -c '^warning: left out')" = 20 ] ||
    failed "not 20 warnings for 30 broken lines"
same old
printf '{"text": 1}\n' > none.jsonl
expect 1 "gave no token (0 documents without one, 1 broken lines" \
    index --skip-broken none.jsonl

# What is valid but unusual is taken.
printf '\xef\xbb\xbf{"text": "\\ud83d\\ude00 caf\\u00e9"}\r\n  {"text":""}  ' > odd.jsonl
expect 0 "set: 1 documents without a token were left out" index odd.jsonl
expect 0 "$(printf '\U1f600 caf\u00e9')" text_of
printf 'a\xffb\xe4\xbdc' > bytes.txt # as bytes.decode("utf-8", "replace")
expect 0 "1 documents" index bytes.txt
expect 0 "$(printf 'a\ufffdb\ufffdc')" text_of

# Nothing in it.
: > empty.txt
: > empty.jsonl
expect 1 "the corpus gave no token" index empty.txt
expect 1 "the corpus gave no token" index empty.jsonl
expect 0 "2 documents" index empty.txt good.jsonl empty.jsonl
same old

# Packed: known by content, the name without .gz and .zst says what it is.
gzip -k good.jsonl
# One frame of one raw block: its length, and the block's header.
printf '\x28\xb5\x2f\xfd\x20\x20\x01\x01\x00' | cat - good.jsonl > good.jsonl.zst
for name in good.jsonl.gz good.jsonl.zst; do
    expect 0 "2 documents" index "$name"
    same old
    head -c -5 "$name" > "cut.${name#good.}"
    expect 1 "'cut.${name#good.}' is cut off" index "cut.${name#good.}"
    expect 1 "cut off" index --skip-broken "cut.${name#good.}"
done
printf 'XXXX' | dd of=good.jsonl.gz bs=1 seek=26 conv=notrunc status=none
expect 1 "'good.jsonl.gz' is broken gzip data" index good.jsonl.gz

# One line of 48 MB, between two small ones; the same text as a file.
yes 'lorem ipsum dolor sit amet 123' | tr '\n' ' ' | head -c 48000000 > huge.txt
{
    printf '{"text": "one"}\n{"text": "'
    cat huge.txt
    printf '"}\n{"text": "two"}\n'
} > huge.jsonl
expect 0 "3 documents" index huge.jsonl
expect 0 "1 documents" index huge.txt
expect 1 "huge.jsonl:1: no key 'body'" index --json-key body huge.jsonl

# The number of workers changes nothing.
for n in $(seq 20); do
    cat "$source"/docs/*.md
done > book.txt
expect 0 "documents" index --workers 1 --split-blank-lines --append-eod book.txt
cp set.bin one.bin
cp set.idx one.idx
for workers in 2 3 8; do
    expect 0 "documents" index --workers $workers --split-blank-lines \
        --append-eod book.txt
    same one
done

# A bar on a terminal, and only there.
head -c 3000000 huge.txt > book.txt
bar() {
    env -u CI "$@" script -qec "'$tool' index --tokenizer '$bpe' \
        --output-prefix set book.txt $quiet" /dev/null
}
quiet=
expect 0 "% 3/3 eta 0s " bar TERM=xterm
expect 0 "$(printf '\r\033[Kset: 1 documents')" bar TERM=xterm
for quiet in '' --quiet; do
    [[ $(bar TERM=dumb) != *eta* ]] || failed "a bar on a dumb terminal"
    [[ $(bar TERM=xterm CI=1) != *eta* ]] || failed "a bar in CI"
done
[[ $(bar TERM=xterm) != *eta* ]] || failed "a bar in spite of --quiet"
[[ $(index book.txt 2>&1) != *eta* ]] || failed "a bar in a pipe"

# inspect: cut at every byte, and changed where it hurts.
expect 0 "2 documents" index good.jsonl
size=$(stat -c %s old.idx)
for ((n = 0; n < size; n++)); do
    head -c $n old.idx > set.idx
    expect 1 "'set.idx'" "$tool" inspect set
done
{ cat old.idx; printf 'more'; } > set.idx
expect 1 "'set.idx'" "$tool" inspect set
cp old.idx set.idx
for ((n = 0; n < $(stat -c %s old.bin); n++)); do
    head -c $n old.bin > set.bin
    expect 1 "'set.bin' has $n bytes, its index promises" "$tool" inspect set
done
{ cat old.bin; printf 'more'; } > set.bin
expect 1 "'set.bin' has" "$tool" inspect set
rm set.bin
expect 66 "cannot open 'set.bin'" "$tool" inspect set
cp old.bin set.bin
expect 0 "2 documents" "$tool" inspect set
damage() { # OFFSET BYTES TEXT
    cp old.idx set.idx
    printf "$2" | dd of=set.idx bs=1 seek="$1" conv=notrunc status=none
    expect 1 "$3" "$tool" inspect set
}
damage 0 'X' "'set.idx'"
damage 9 '\x02' "version 2"
damage 17 '\x09' "type code 9"
damage 18 '\xff\xff\xff\xff\xff\xff\xff\x7f' "'set.idx'"
damage 26 '\x00' "'set.idx'"
damage 34 '\xff\xff\xff\xff' "sequence 0"
damage 42 '\x07' "sequence 0"
damage 58 '\x01' "the first document starts at sequence 1, must be 0"

# text in another encoding is not taken for UTF-8 without a word
printf 'w\366rter\n' > latin.txt
expect 0 "1 documents are not UTF-8 throughout" "$tool" index --quiet \
    --tokenizer "$bpe" --output-prefix latin latin.txt
expect 2 "has no '[NONE]'" "$tool" index --quiet --eod-token '[NONE]' \
    --tokenizer "$bpe" --output-prefix latin latin.txt

# ---- shuffled by documents, merged, split ----
for i in $(seq 100 299); do echo "{\"text\": \"$i\"}"; done > lines.jsonl
index() { "$tool" index --quiet --tokenizer bytes "$@"; }
texts() { # SET: its documents, sorted
    tr -d '\0' < "$1.bin" | sed 's/.../&\n/g' | sort
}
expect 0 "200 documents" index --output-prefix plain lines.jsonl
expect 0 "200 documents" index --output-prefix mixed --shuffle 7 lines.jsonl
expect 0 "200 documents" index --output-prefix again --shuffle 7 --workers 3 \
    lines.jsonl
expect 0 "200 documents" index --output-prefix other --shuffle 8 lines.jsonl
cmp -s mixed.bin plain.bin && failed "--shuffle leaves the order of lines"
cmp -s mixed.bin again.bin || failed "the order depends on the workers"
cmp -s mixed.bin other.bin && failed "the order does not depend on the seed"
[ "$(texts mixed)" = "$(texts plain)" ] || failed "other documents"
[ ! -e mixed.sorted.bin ] && [ ! -e mixed.sorted.idx ] || failed "files left"
head -c 300 mixed.bin | tr -d '\0' | grep -q "^10010110210310410510610" &&
    failed "the beginning is in order"
expect 0 "400 documents" "$tool" merge --output-prefix both plain mixed
cat plain.bin mixed.bin | cmp -s - both.bin || failed "a merge changes content"
expect 0 "150 documents" "$tool" merge --output-prefix head --documents 0:0.75 \
    mixed
expect 0 "50 documents" "$tool" merge --output-prefix tail --documents 0.75:1 \
    mixed
cat head.bin tail.bin | cmp -s - mixed.bin || failed "a part is lost"
expect 0 "200 documents" "$tool" merge --output-prefix third --shuffle 7 plain
cmp -s third.bin mixed.bin || failed "two orders of one seed"
expect 2 "--documents '0.5'" "$tool" merge --output-prefix x --documents 0.5 plain
expect 2 "both a source and the output" "$tool" merge --output-prefix plain plain
expect 66 "cannot open 'none.idx'" "$tool" merge --output-prefix x plain none

# ---- what is no text ----
printf 'PAR1 and more' > a.parquet
printf '\313\r\r\n\0\0\0\0code' > b.pyc
mkdir tree
cp a.parquet tree/
echo text > tree/c.txt
expect 1 "'a.parquet' is a Parquet file, not text" index --output-prefix x \
    a.parquet
expect 1 "'b.pyc' is not text: byte 4 is 0" index --output-prefix x b.pyc
expect 1 "'tree/a.parquet' is a Parquet file" index --output-prefix x tree
expect 0 "1 documents" index --output-prefix x --suffixes .txt tree
: > tree/d.txt
: > tree/e.jsonl
expect 0 "2 of the files are empty" index --output-prefix x \
    --suffixes .txt,.jsonl tree

finish
