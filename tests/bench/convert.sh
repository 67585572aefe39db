#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: convert.sh BUILD PLACE [LAYERS] [ROUNDS] [cold|warm]: import and export
# of a 7B model in bf16 (13.4 GB with 32 layers) beside cp of the same files on
# the same file system, in turns; cp is first in odd rounds, last in even ones.
# PLACE needs 41 GB. Cold: each begins with its source out of the page cache;
# warm: with what the memory holds of it. cp has finished when the data is on
# the disk (sync), as import and export have; the time without it stands behind.
set -eu
build=$1
place=$2
layers=${3:-32}
rounds=${4:-2}
cache=${5:-cold}
mkdir -p "$place"
cd "$place"
trap 'rm -rf source copy native back' EXIT
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
evict() {
    sync
    [ "$cache" = cold ] || return 0
    for file in "$@"; do
        dd if="$file" iflag=nocache count=0 status=none
    done
}
"$build/make_model" source "$layers" 4096 32000 dense 5000000000
bytes=$(cat source/*.safetensors | wc -c)
echo "source: $bytes bytes"
beside_cp() {
    evict source/*.safetensors
    start=$(now)
    cp -r source copy
    plain=$(since "$start")
    sync -f copy
    echo "cp $(since "$start") s ($plain without sync)"
    rm -rf copy
}
both_ways() {
    evict source/*.safetensors
    start=$(now)
    "$build/loong-ckpt" import source native --quiet
    echo "import $(since "$start") s"
    evict native/step_00000000/*.h5
    start=$(now)
    "$build/loong-ckpt" export native back --quiet
    echo "export $(since "$start") s"
    for file in source/*.safetensors; do
        cmp "$file" "back/${file#*/}"
    done
    rm -rf native back
}
for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 1 ]; then
        beside_cp
        both_ways
    else
        both_ways
        beside_cp
    fi
done
