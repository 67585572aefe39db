#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: draft_recipes.sh BUILD SOURCE: what is proposed for a model of every
# family can be used as it is: model and map for an import, the recipe for a
# plan.
set -eu
build=$1
source=$2
. "$source/tests/in_place.sh"

count=0
for model in "$source"/tests/golden/fixtures/*; do
    name=${model##*/}
    "$build/loong-ckpt" draft "$model" "$name" >out 2>err || fail "$name"
    grep -q ' 0 kinds of parameters have no tensor, and 0 tensors are ' out ||
        fail "$name"
    "$build/loongrun" "$name/recipe.yaml" --dry-run --elsewhere >out 2>err ||
        fail "$name: no plan"
    "$build/loong-ckpt" diff "$model" "$model" --model "$name/model.yaml" \
        --map "$name/map.yaml" >out 2>err || fail "$name: not read"
    count=$((count + 1))
done

# A layer more than there are tensors for.
cp -r "$source/tests/golden/fixtures/llama3_gqa_tied" more
sed -i -E 's/("num_hidden_layers": *)[0-9]+/\19/; /"layer_types"/d' \
    more/config.json
code=0
"$build/loong-ckpt" draft more drafted >out 2>err || code=$?
[ $code = 1 ] || fail "tensors of layers are missing: exit $code"
[ $count -ge 50 ] || fail "only $count models"
