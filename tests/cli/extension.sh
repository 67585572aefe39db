#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: extension.sh BUILD SOURCE OBJECT [MPIRUN]: a recipe names a shared
# object, the example's, and trains what is in it alone; what is wrong with
# objects and recipes is told.
set -eu
build=$1
source=$2
mpirun=${4:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1
cp "$3" rings.so
cp "$source/examples/extension/rings.yaml" .
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

losses() { grep -o '^step.*| loss [0-9.]*' | sed 's/.*loss //' | xargs; }
"$build/loongrun" rings.yaml precision.params_dtype=fp64 >out 2>err ||
    fail "$(cat out err)"
one=$(losses <out)
# Half of the margin squared and more is what a model has that knows nothing.
[ -n "$one" ] && awk "BEGIN { exit !(${one##* } < 0.01) }" ||
    fail "learned to losses of $one"
grep -q 'nothing in this run reads it' out err && fail "a key is not read"
if [ -n "$mpirun" ]; then
    "$mpirun" --oversubscribe -n 2 "$build/loongrun" rings.yaml \
        precision.params_dtype=fp64 train.micro_batch_size=10 >out 2>err ||
        fail "$(cat out err)"
    [ "$(losses <out)" = "$one" ] || fail "two ranks: $(losses <out), not $one"
fi

# Code that was mended since a checkpoint is told, and goes on.
go() { "$build/loongrun" rings.yaml checkpoint.save=save "$@" >out 2>err; }
told='extensions: the code of ./rings.so is not what the checkpoint was saved'
go train.train_iters=1 || fail "$(cat out err)"
go train.train_iters=2 checkpoint.load=auto || fail "$(cat out err)"
! grep -q "$told" err || fail "the same code is told as another"
printf ' ' >>rings.so
go train.train_iters=3 checkpoint.load=auto || fail "$(cat out err)"
grep -q "$told" err || fail "other code is not told: $(cat err)"

# Its Hugging Face directory: fields and names as the example says them, and
# the same bytes again from what was read.
rm -rf save
go train.train_iters=5 precision.params_dtype=fp64 export.hf=hub ||
    fail "$(cat out err)"
for field in '"model_type": "rings"' '"hidden_size": 16' '"hinge_margin": 0.5' \
    '\["RingsForPointClassification"\]'; do
    grep -q "$field" hub/config.json || fail "no $field in config.json"
done
grep -aq '"rings.out_proj.weight":{"dtype":"F64","shape":\[1,16\]' \
    hub/model.safetensors || fail "names of tensors"
sed '/^model:/,/foundation:/d' rings.yaml >from.yaml
printf 'model: {from_hf: hub}\ninit: {from_hf: hub}\n' >>from.yaml
from() {
    "$build/loongrun" from.yaml precision.params_dtype=fp64 \
        train.train_iters=1 optimizer.lr=0 "$@" >out 2>err
}
from checkpoint.save=save2 export.hf=again || fail "$(cat out err)"
cmp hub/model.safetensors again/model.safetensors || fail "other weights"
cmp hub/config.json again/config.json || fail "another config.json"
cp hub/config.json whole.json
# misread TEXT SED: a config.json with a flaw
misread() {
    sed "$2" whole.json >hub/config.json
    if from; then
        fail "accepted: $2"
    elif ! grep -q "$1" out err; then
        fail "$2: no '$1' in: $(cat out err)"
    fi
}
misread 'hidden_size is missing' '/hidden_size/d'
misread 'hinge_margin = -1 is not supported' 's/0.5/-1/'
misread 'depth = 2 is not supported' 's/"hidden_size"/"depth": 2, &/'
misread "'rows' is not supported" 's/"rings"/"rows"/'

# refused TEXT OVERRIDE...
refused() {
    local text=$1
    shift
    if "$build/loongrun" "$@" >out 2>err; then
        fail "accepted: $*"
    elif ! grep -q "$text" err; then
        fail "$*: no '$text' in: $(cat err)"
    fi
}
cat >inner.yaml <<EOF2
extensions: [./rings.so]
EOF2
printf 'defaults: [inner.yaml]\n' >outer.yaml
sed 1,3d rings.yaml | grep -v '^extensions' >>outer.yaml
refused 'not by a file among its defaults' outer.yaml
refused 'none.so' rings.yaml 'extensions=[./none.so]'
printf 'not an object' >text.so
refused 'text.so' rings.yaml 'extensions=[text.so]'
refused 'no function loong_extension' rings.yaml \
    "extensions=[$(readlink -f "$build/libloong.so")]"
# made CHANGE: the example with a flaw
made() {
    sed "$1" "$source/examples/extension/rings.c" | cc -shared -fPIC \
        -I "$source/include" -x c - -L "$build" -lloong -lm -o made.so
}
made 's/struct_size = sizeof(processor)/struct_size = 4096/'
refused 'its loong_processor_t has 4096 bytes' rings.yaml 'extensions=[made.so]'
made 's/struct_size = sizeof(hub_type)/struct_size = 8/'
refused 'a loong_hub_type_t has 8 bytes' rings.yaml 'extensions=[made.so]'
made 's/model_type = "rings"/model_type = "llama"/'
refused 'model type llama is registered already' rings.yaml \
    'extensions=[made.so]'
made 's/\.keys = keys/.keys = NULL/'
refused 'with name, keys and enter' rings.yaml 'extensions=[made.so]'
refused 'extensions\[1\]' rings.yaml 'extensions=[rings.so, made.so]'
refused 'found rings' rings.yaml '~extensions' '~model.foundation.margin'
refused 'model.foundation.margin' rings.yaml model.foundation.margin=-1
[ $failures = 0 ] && echo "losses $one"
