#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: convert.sh BUILD GIGABYTES: import and export of a model whose tensors
# are holes: little memory, and holes on the other side. Then, of a small dense
# one, that a conversion that is killed goes on where it was.
set -eu
build=$1
gigabytes=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
ckpt() { "$build/loong-ckpt" "$@"; }
fail() {
    echo "FAILED: $*"
    exit 1
}
kilobytes() { du -sk "$1" | cut -f 1; }

# peak LIMIT_MB COMMAND...: fails when it takes more memory than that, pages of
# mapped files included, as the kernel counts them (VmHWM).
peak() {
    local limit=$1 high=0 now
    shift
    "$@" &
    local pid=$!
    while now=$(awk '/^VmHWM/ { print $2 }' /proc/$pid/status 2>/dev/null) &&
        [ -n "$now" ]; do
        high=$now
        sleep 0.02
    done
    wait $pid || fail "$*"
    echo "peak $((high / 1024)) MiB: $1 $2"
    [ $((high / 1024)) -le "$limit" ] ||
        fail "$* took $((high / 1024)) MiB, $limit allowed"
    [ "$high" -gt 0 ] || fail "$* was not seen"
}

# ---- holes ----
# A layer of hidden 8192 has 1.6 GB.
layers=$((gigabytes * 10 / 16))
"$build/make_model" sparse $layers 8192 8000 sparse 5000000000
size=$(du -sb --apparent-size sparse | cut -f 1)
[ "$size" -gt $((gigabytes * 900000000)) ] || fail "the fake has $size bytes"
[ "$(kilobytes sparse)" -lt 4096 ] || fail "the fake is not sparse"
peak 2048 "$build/loong-ckpt" import sparse native --quiet
[ "$(kilobytes native)" -lt 16384 ] ||
    fail "the import has $(kilobytes native) KB: no holes"
peak 2048 "$build/loong-ckpt" export native back --quiet
[ "$(kilobytes back)" -lt 16384 ] ||
    fail "the export has $(kilobytes back) KB: no holes"
[ "$(du -sb --apparent-size back/*.safetensors | cut -f 1)" = \
    "$(du -sb --apparent-size sparse/*.safetensors | cut -f 1)" ] ||
    fail "the export has another size"
for file in sparse/*.safetensors; do # all of a small fake
    cmp -n $((gigabytes < 10 ? size : 100000)) "$file" "back/${file#*/}" ||
        fail "another $file"
done
rm -rf sparse native back

# ---- interruptions ----
# Files of the native side end at 2 GB, so the export has the smaller steps.
"$build/make_model" dense 6 512 8000 dense 5000000
ckpt import dense native --quiet
ckpt export native whole --max-shard-gb 0.005 --quiet
ckpt diff dense whole >diff || fail "$(tail -1 diff)"
kills=0
for delay in 0.01 0.02 0.03 0.04 0.06 0.1 0.2; do
    before=$(ls -i out/.tmp_model/model-*.safetensors 2>/dev/null || :)
    "$build/loong-ckpt" export native out --max-shard-gb 0.005 --quiet &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null || :
    [ ! -e out/model.safetensors.index.json ] || break
    # What was whole before is the same file still.
    after=$(ls -i out/.tmp_model/model-*.safetensors 2>/dev/null || :)
    while read -r line; do
        [ -z "$line" ] || grep -qxF "$line" <<<"$after" ||
            fail "$line was made again"
    done <<<"$before"
    ckpt inspect out >/dev/null 2>&1 && fail "a half export can be read"
done
ckpt export native out --max-shard-gb 0.005 --quiet
[ ! -e out/.tmp_model ] || fail "something was left"
for file in whole/*; do
    cmp "$file" "out/${file#*/}" || fail "another $file"
done
for delay in 0.01 0.02 0.05; do
    "$build/loong-ckpt" import dense imported --quiet &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null || :
    [ -e imported/latest ] ||
        { ckpt inspect imported >/dev/null 2>&1 && fail "a half import"; }
done
ckpt import dense imported --quiet
ckpt verify imported >out.txt || fail "$(cat out.txt)"
[ -z "$(ls -A imported | grep tmp)" ] || fail "the import left something"
[ $kills -gt 2 ] || fail "only $kills attempts were killed"
echo "killed $kills times"

# Another source is another job: nothing of the first is taken.
rm -rf out
"$build/loong-ckpt" export native out --max-shard-gb 0.005 --quiet &
pid=$!
sleep 0.1
kill -9 $pid 2>/dev/null || :
wait $pid 2>/dev/null || :
ckpt export native out --max-shard-gb 0.005 --dtype fp32 --quiet
ckpt diff dense out >diff || fail "$(tail -1 diff)"
ckpt convert out narrow --dtype bf16 --max-shard-gb 0.005 --quiet
ckpt diff dense narrow >diff || fail "$(tail -1 diff)"
grep -q 'all values are equal' diff || fail "$(tail -1 diff)"
! grep -q ': type ' diff || fail "a conversion left another type"
