#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: convert_doc.sh BUILD SOURCE: the commands of
# docs/convert-your-model.md, in their order, on a model with the names of the
# map that stands there and a config.json with words of its own.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
PATH=$build:$PATH
doc=$source/docs/convert-your-model.md
fixture=$source/tests/golden/fixtures/llama3_gqa_tied
fail() {
    echo "FAILED: $*"
    exit 1
}

# The first map of the document.
awk '/^    tensors:/ && !done { on = 1 } /^[^ ]/ { if (on) done = 1; on = 0 }
    on { print substr($0, 5) }' "$doc" >doc.yaml
grep -q '^ignore:' doc.yaml || fail "no map in the document"
loong-ckpt import "$fixture" plain --quiet
loong-ckpt export plain my-model --map doc.yaml --quiet 2>/dev/null
[ ! -e my-model/config.json ] || fail "config.json of another model"
sed -e 's/"model_type": .*/"model_type": "homemade",/' \
    -e 's/"hidden_size"/"dim"/' -e 's/"num_hidden_layers"/"n_layers"/' \
    -e 's/"num_attention_heads"/"n_heads"/' \
    -e 's/"num_key_value_heads"/"n_kv_heads"/' \
    -e 's/"intermediate_size"/"d_ff"/' \
    "$fixture/config.json" >my-model/config.json

count=0
while read -r line; do
    count=$((count + 1))
    case $line in
    *diff*) # one way of reading a number is not another
        $line >out 2>err || :
        grep -q 'all values are equal' out || fail "$line: $(cat out err | tail -n 5)"
        ;;
    *) $line >out 2>err || fail "$line: $(cat out err | tail -n 5)" ;;
    esac
    case $line in
    *draft\ my*) grep -q '0 have none; 0 kinds' out || fail "$(tail -n 1 out)" ;;
    esac
done < <(sed -n 's/^    \(loong-ckpt .*\|loongrun .*\)/\1/p' "$doc")
[ $count -eq 7 ] || fail "$count commands in the document"

loong-ckpt diff hf "$fixture" >out || grep -q 'all values are equal' out ||
    fail "hf: $(tail -n 3 out)"
for file in my-model/*.safetensors; do
    cmp "$file" "mine/${file#*/}" || fail "other names came back"
done
