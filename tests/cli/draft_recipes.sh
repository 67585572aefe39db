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
[ $count -ge 50 ] || fail "only $count models"
