#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# loong-data index and inspect from outside: what they print and how they
# exit. usage: data.sh PATH/TO/loong-data
set -u
tool=$(readlink -f "$1")
. "$(dirname "$(readlink -f "$0")")/expect.sh"
index() { "$tool" index --tokenizer bytes --output-prefix set "$@"; }

mkdir -p docs/deep
printf 'first document\n' > docs/a.rst
printf 'second one\n' | gzip > docs/deep/b.rst.gz
printf 'not this\n' > docs/c.html
printf '{"body": "j1"}\n\n{"body": "j2"}\n' > lines.jsonl

expect 2 "usage: loong-data COMMAND" "$tool"
expect 2 "no command 'frob'" "$tool" frob
expect 0 "inspect" "$tool" --help
expect 0 "--split-blank-lines" "$tool" index --help
expect 2 "--tokenizer FILE is missing" "$tool" index docs
expect 2 "a file or directory is missing" index
expect 2 "unrecognized option" index --frob docs
expect 2 "must be a whole number from 1 to 256" index --workers 0 docs
expect 2 "must be uint16 or int32" index --dtype int8 docs
expect 66 "'nowhere': No such file" index nowhere
expect 66 "no file that ends in .md" index --suffixes .md docs
expect 0 "2 documents, 28 tokens (uint16) from 2 files" \
    index --suffixes .rst --append-eod docs
expect 0 "document 1 (12 tokens): second one\\n" \
    "$tool" inspect --tokenizer bytes set
expect 0 "ids: 10 to 256, 15 different" "$tool" inspect --validate set
# one id, 2000000000: named, and no memory for as many counts
printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\4\1\0\0\0\0\0\0\0' >huge.idx
printf '\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0' >>huge.idx
printf '\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' >>huge.idx
printf '\0\224\065\167' >huge.bin
expect 1 "value 2000000000, allowed is 0 to 99999999" \
    "$tool" inspect --validate huge
expect 1 "value 256, allowed is 0 to 255" \
    "$tool" inspect --validate --vocab-size 256 set
expect 1 "lines.jsonl:1: no key 'text'; keys are: 'body'" index lines.jsonl
# the failed run left the old data set alone
expect 0 "2 documents, 2 sequences, 28 tokens" "$tool" inspect set
expect 0 "2 documents, 4 tokens (int32)" \
    index --json-key body --dtype int32 lines.jsonl
expect 2 "--vocab-size needs --validate" "$tool" inspect --vocab-size 9 set
expect 2 "one PREFIX is expected, found 0" "$tool" inspect
expect 66 "cannot open 'none.idx'" "$tool" inspect none
truncate -s 5 set.bin
expect 1 "'set.bin' has 5 bytes, its index promises 16" "$tool" inspect set
truncate -s 50 set.idx
expect 1 "'set.idx' is truncated" "$tool" inspect set

finish
