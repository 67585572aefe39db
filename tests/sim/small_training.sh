# SPDX-License-Identifier: Apache-2.0
# A training of three steps of a model that simulated devices are quick with, and
# how losses are compared; for scripts, which have fail from in_place.sh.

# write_training BUILD SOURCE LAYERS: its data and recipe.yaml are written here.
write_training() {
  "$1/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$2/docs/devices" >/dev/null
  cat >recipe.yaml <<YAML
model:
  foundation:
    family: qwen3
    num_layers: $3
    hidden_size: 16
    ffn_hidden_size: 24
    num_attention_heads: 2
    vocab_size: 257
    max_position_embeddings: 16
    activation: swiglu
    untie_embeddings_and_output_weights: false
precision: {params_dtype: fp32}
data: {seq_length: 16, train: [{path: text}]}
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 3}
optimizer: {lr: 1e-3}
parallel: {data_parallel_sharding: optim_grads, bucket_bytes: 4096}
log: {interval: 1}
comm: {timeout: 60s}
YAML
}

# losses DIR: of every step
losses() {
  sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"
}

# alike A B COUNT: the last losses, equal to a relative 64 x 2^-24
alike() {
  paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
    awk -v count="$3" '
      { d = $1 - $2; if (d < 0) d = -d
        if (NF != 2 || d > 64 / 16777216 * $1) bad = 1 }
      END { exit bad || NR != count }' || fail "losses of $1 and $2"
}
