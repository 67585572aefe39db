#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: convert.sh BUILD GIGABYTES: import and export of a model whose tensors
# are holes: little memory, holes on the other side, progress. Then, of a small
# dense one, that a conversion that is killed goes on where it was, that two do
# not write into one directory, and that threads share the work.
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
    local limit=$1 high=0 now key
    shift
    "$@" &
    local pid=$!
    while kill -0 $pid 2>/dev/null; do
        while read -r key now _; do
            [ "$key" != VmHWM: ] || high=$now
        done 2>/dev/null </proc/$pid/status || :
        sleep 0.03
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

# ---- progress ----
# A bar on a terminal, nothing when quiet, elsewhere lines every ten seconds: a
# process that stood still for so long owes one.
shown() { # ARGUMENTS...: what a terminal of 80 columns sees
    TERM=xterm CI= COLUMNS=80 script -qec \
        "stty cols 80; $build/loong-ckpt $*" /dev/null
}
# What converts two gigabytes of holes sooner than it draws has four times as
# many to convert.
"$build/make_model" wide $((layers * 4)) 8192 8000 sparse 5000000000
bar='^\[=*>? *\] +[0-9]+% [0-9]+/[0-9]+ eta [0-9hms]+ \(MB, [0-9]+ MB/s\)'
for try in 1 2 3; do # one is drawn after 0.1 s: a lucky run needs no longer
    rm -rf again
    shown import wide again | tr '\r' '\n' |
        sed 's/\x1b\[[0-9;]*[A-Za-z]//g' >bar
    ! grep -qE "$bar" bar || break
done
grep -qE "$bar" bar || fail "no bar: $(cat -A bar)"
longest=$(awk '{ n = length($0) > n ? length($0) : n } END { print n }' bar)
[ "$longest" -le 81 ] || fail "the bar has $longest columns of 80"
if [ "$gigabytes" -ge 10 ]; then
    rm -rf again
    "$build/loong-ckpt" import sparse again 2>lines >/dev/null &
    pid=$!
    sleep 0.3
    kill -STOP $pid
    sleep 10.5
    kill -CONT $pid
    wait $pid || fail "stopped, and then: $(cat lines)"
    grep -qE '^[0-9]+ of [0-9]+ MB, [0-9]+ MB/s, [0-9]+ s left$' lines ||
        fail "no line: $(cat lines)"
    [ "$(wc -l <lines)" -le $((SECONDS / 10)) ] || fail "$(wc -l <lines) lines"
fi
rm -rf sparse native back again

# ---- interruptions ----
# Files of the native side end at 2 GB, so the export has the smaller steps.
"$build/make_model" dense 6 512 8000 dense 5000000
ckpt import dense native --quiet
ckpt export native whole --max-shard-gb 0.005 --quiet
ckpt diff dense whole >diff || fail "$(tail -1 diff)"
shown import dense silent --quiet | grep -q . && fail "--quiet shows something"
# killed_at DELAY COMMAND...
killed_at() {
    local delay=$1
    shift
    "$build/loong-ckpt" "$@" --quiet &
    local pid=$!
    sleep "$delay"
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null || :
}
# Points within the time that a whole one takes, told when it fails.
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
RANDOM=$seed
echo "random points: seed $seed"
took() { # COMMAND...: milliseconds
    local begin=$(date +%s%N)
    ckpt "$@" --quiet
    echo $((($(date +%s%N) - begin) / 1000000))
}
point() { awk -v r=$RANDOM -v t="$1" 'BEGIN { print r / 32768 * t / 1000 }'; }
same_files() { # A B
    for file in "$1"/*; do
        cmp "$file" "$2/${file#*/}" || fail "seed $seed: another $file"
    done
}
# Inodes and names, also of those that have gone to their place already.
whole_files() {
    find out -name 'model-*.safetensors' -printf '%i %f\n' 2>/dev/null | sort
}
time=$(took export native timed --max-shard-gb 0.005)
kills=0
for round in $(seq 40); do
    [ $kills -lt 4 ] || break
    rm -rf out
    for again in 1 2 3; do
        before=$(whole_files)
        killed_at "$(point "$time")" export native out --max-shard-gb 0.005
        [ ! -e out/model.safetensors.index.json ] || break
        # What was whole before is the same file still.
        after=$(whole_files)
        while read -r line; do
            [ -z "$line" ] || grep -qxF "$line" <<<"$after" ||
                fail "seed $seed: $line was made again"
        done <<<"$before"
        ckpt inspect out >/dev/null 2>&1 &&
            fail "seed $seed: a half export can be read"
    done
    ckpt export native out --max-shard-gb 0.005 --quiet
    [ ! -e out/.tmp_model ] || fail "seed $seed: something was left"
    same_files whole out
done
time=$(took import dense timed_import)
for round in $(seq 40); do
    [ $kills -lt 6 ] || break
    rm -rf imported
    killed_at "$(point "$time")" import dense imported
    [ -e imported/latest ] ||
        { ckpt inspect imported >/dev/null 2>&1 &&
            fail "seed $seed: a half import can be read"; }
    ckpt import dense imported --quiet
    ckpt verify imported >out.txt || fail "seed $seed: $(cat out.txt)"
    [ -z "$(ls -A imported | grep tmp)" ] ||
        fail "seed $seed: the import left something"
    ckpt diff dense imported >diff || fail "seed $seed: $(tail -1 diff)"
done
[ $kills -ge 6 ] || fail "only $kills attempts were killed"
echo "killed $kills times"

# ---- two at once ----
# The second is refused while the first writes, whatever it would write.
for way in "import dense" "export native"; do
    rm -rf both
    "$build/loong-ckpt" $way both --quiet &
    pid=$!
    until ls both/.tmp_* >/dev/null 2>&1; do
        sleep 0.002
        kill -0 $pid 2>/dev/null || fail "$way: too quick to be seen"
    done
    kill -STOP $pid
    code=0
    ckpt $way both --quiet 2>err || code=$?
    kill -CONT $pid
    if [ ! -e both/latest ] && [ ! -e both/model.safetensors ]; then
        [ $code = 73 ] || fail "$way: the second ends with $code: $(cat err)"
        grep -q 'another process writes to' err || fail "$way: $(cat err)"
    fi
    wait $pid || fail "$way: the first failed"
    ckpt diff dense both >diff || fail "$way: $(tail -1 diff)"
done

# ---- threads ----
# Each takes a part of the work: of the processor's time none has all.
"$build/make_model" wide 4 1024 32000 dense 5000000000
"$build/loong-ckpt" convert wide wide.f32 --dtype fp32 --quiet &
pid=$!
while kill -0 $pid 2>/dev/null; do
    cat /proc/$pid/task/*/stat >now 2>/dev/null || :
    [ "$(wc -l <now)" -lt 2 ] || cp now ticks
    sleep 0.05
done
wait $pid || fail "no conversion"
awk '{ sub(/.*\) /, ""); ticks = $12 + $13; sum += ticks
    most = ticks > most ? ticks : most } END {
    printf "threads: %d, the busiest has %.0f %% of the time\n", NR,
        100 * most / sum
    exit NR < 2 || most > 0.8 * sum }' ticks || fail "the work is not shared"
rm -rf wide wide.f32

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
