#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: no_mpi.sh BUILD SOURCE: the library without MPI, configured, built with
# warnings as errors, and training on its one rank.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fail() {
    echo "FAILED: $1"
    cd "$place"
    tail -n 20 configure build tests out err 2>/dev/null
    exit 1
}
cmake -S "$source" -B "$build" -G Ninja -DLOONG_MPI=OFF -DLOONG_WERROR=ON \
    >"$place/configure" || fail "configure"
grep -q "MPI communicator: off" "$place/configure" || fail "no word of it"
cmake --build "$build" >"$place/build" 2>&1 || fail "build"
for file in "$build"/libloong.so "$build"/loongrun; do
    ! ldd "$file" | grep -q libmpi || fail "$file is linked with MPI"
done
cd "$place"
"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
cat >recipe.yaml <<'YAML'
model:
  foundation: {family: qwen3, num_layers: 1, hidden_size: 64,
    ffn_hidden_size: 128, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 64}
data: {seq_length: 64, train: [{path: text}]}
train: {micro_batch_size: 8, global_batch_size: 8, train_iters: 60}
optimizer: {lr: 1e-2}
log: {interval: 60}
checkpoint: {save: save}
device: cpu
YAML
"$build/loongrun" recipe.yaml >out 2>err || fail "training"
loss=$(sed -n 's/^finished at step 60 .* | loss \([0-9.]*\),.*/\1/p' out)
awk "BEGIN { exit !($loss < 4.5) }" || fail "loss $loss; 5.55 knows nothing"
code=0
"$build/loongrun" recipe.yaml comm.backend=mpi checkpoint.save=other \
    >out 2>err || code=$?
[ $code != 0 ] || fail "comm.backend=mpi did something"
grep -q "this library was built without MPI" err || fail "no reason"
# mpirun starts two, each would be a job of its own
code=0
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 \
    OMPI_COMM_WORLD_LOCAL_SIZE=1 "$build/loongrun" recipe.yaml \
    checkpoint.save=third >out 2>err || code=$?
[ $code = 1 ] || fail "one of two ranks without MPI: exit $code, not 1"
grep -q "this library was built without MPI" err || fail "two ranks: no reason"
"$build/loongrun" --doctor >doctor || fail "--doctor"
grep -qi "without MPI\|no MPI" doctor || fail "--doctor says nothing of MPI"
ctest --test-dir "$build" -R '^(comm|mesh|base|recipe)$' \
    --output-on-failure >tests 2>&1 || fail "tests"
echo "without MPI: built, trained to a loss of $loss"
