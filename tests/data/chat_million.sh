#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: chat_million.sh BUILD SOURCE: a million conversations are rendered and
# tokenised in memory that is the same as for a tenth of them, but for the table
# of samples, and found again by the next start.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
fail() {
    echo "FAILED: $*"
    exit 1
}
records() {
    awk -v n="$1" 'BEGIN { srand(1)
        split("what is the sum of all the words that stand here and why", w)
        for (i = 0; i < n; i++) {
            q = a = ""
            for (k = 0; k < 4 + rand() * 20; k++) q = q " " w[1 + int(rand() * 13)]
            for (k = 0; k < 4 + rand() * 30; k++) a = a " " w[1 + int(rand() * 13)]
            printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, ", q
            printf "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n", a
        } }'
}
# check NAME: the output of loong-data, $kib: its largest memory, $seconds.
check() {
    local begin=$SECONDS pid line
    "$build/loong-data" chat check --tokenizer \
        "$source/tests/fixtures/chat/generation" --cache cache "$1" >"$2" 2>&1 &
    pid=$!
    kib=0
    while line=$(grep VmHWM "/proc/$pid/status" 2>/dev/null); do
        kib=$(tr -dc 0-9 <<<"$line")
        sleep 0.05
    done
    wait $pid || fail "$(tail -n 5 "$2")"
    seconds=$((SECONDS - begin))
}
records 100000 >some.jsonl
records 1000000 >all.jsonl
check some.jsonl some.out
some=$kib
check all.jsonl all.out
grep -q '^samples: 1000000, ' all.out || fail "$(cat all.out)"
echo "1000000 records of $(($(stat -c %s all.jsonl) >> 20)) MiB: $seconds s," \
    "$((kib >> 10)) MiB; 100000: $((some >> 10)) MiB"
# 24 bytes a sample, 12 for the index, 20 mapped of it and 8 to find the median
# and a half as much where an array grows.
[ "$kib" -lt $((some + 900000 * 96 / 1024)) ] ||
    fail "memory grows by $((kib - some)) KiB"
check all.jsonl again.out
cmp <(grep -v rendering all.out) <(grep -v rendering again.out) ||
    fail "another result of the second start"
! grep -q rendering again.out || fail "it is made again"
echo "the second start: $seconds s, $((kib >> 10)) MiB"
[ "$seconds" -lt 20 ] || fail "the second start takes $seconds s"
