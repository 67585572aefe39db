# SPDX-License-Identifier: Apache-2.0
# For tests of the guides, which are called with BUILD and SOURCE: commands of the
# build are in PATH, a place of their own is the directory.
set -eu
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
PATH=$build:$PATH
export XDG_CACHE_HOME=$place/cache
fail() {
    echo "FAILED: $*"
    exit 1
}

# small_model DIRECTORY: a published model, with weights by chance.
small_model() {
    cp -r "$source/tests/fixtures/chat/generation" "$1"
    cat >base.yaml <<END
model: {foundation: {family: llama, num_layers: 2, hidden_size: 32,
  ffn_hidden_size: 64, num_attention_heads: 2, vocab_size: 512,
  max_position_embeddings: 128}}
data: {tokenizer: $1, seq_length: 128,
  train: [{path: base.jsonl, source: chat}]}
train: {global_batch_size: 1, train_iters: 1}
optimizer: {lr: 1e-4}
checkpoint: {save: base}
export: {hf: weights}
END
    echo '{"text": "Two and two."}' >base.jsonl
    loongrun base.yaml >base.out 2>&1 || fail "$(tail -n 20 base.out)"
    cp weights/config.json weights/*.safetensors "$1"
}

# run_commands GUIDE COUNT: its blocks of commands, so many, each into
# blockNN.sh.out.
run_commands() {
    local block count=0
    rm -f block*.sh
    awk -v RS='```' 'NR % 2 == 0 && sub(/^sh\n/, "") {
        printf "%s", $0 > sprintf("block%02d.sh", ++n) }' "$1"
    for block in block*.sh; do
        count=$((count + 1))
        bash -eu "$block" >"$block.out" 2>&1 ||
            fail "$(cat "$block"): $(tail -n 20 "$block.out")"
    done
    [ "$count" = "$2" ] || fail "$1: $count blocks of commands, expected $2"
}
