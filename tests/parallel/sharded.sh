#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: sharded.sh BUILD SOURCE MPIRUN: a run on two ranks under every level of
# sharding: the same training, evaluations, sampled texts and exported model;
# any of them goes on from what another saved.
. "$(dirname "$(readlink -f "$0")")/ranks.sh"

# What a run said of its losses and texts, without times.
said() {
    grep -E "eval docs|^sample" "$1.out" | sed -E 's/ tokens \|.*//'
}

cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 3
    hidden_size: 48
    ffn_hidden_size: 96
    num_attention_heads: 4
    num_query_groups: 2
    kv_channels: 12
    vocab_size: 257
    max_position_embeddings: 64
    activation: swiglu
data:
  seq_length: 64
  tokenizer: bytes
  train: [{path: text}]
  validation: [{name: docs, path: text}]
train: {micro_batch_size: 1, global_batch_size: 2, train_iters: 12}
optimizer: {lr: 3e-3}
parallel: {bucket_bytes: 16384}
eval:
  interval: 4
  iters: 3
  sample: {prompts: ["The ", "A rank"], max_new_tokens: 12, top_k: 5}
checkpoint: {keep_last: 9}
log: {interval: 4}
YAML

for level in optim none optim_grads optim_grads_params; do
    ranks 2 $level recipe.yaml parallel.data_parallel_sharding=$level \
        checkpoint.save=save_$level checkpoint.save_interval=8 \
        export.hf=hf_$level
    said $level >$level.said
    [ "$(wc -l <$level.said)" = 9 ] || fail "not nine lines of $level"
    cmp optim.said $level.said || fail "$level said other things"
    cmp hf_optim/model.safetensors hf_$level/model.safetensors ||
        fail "$level exported another model"
done

# Step 8 of one level, the rest with another.
"$build/loong-ckpt" diff save_optim save_optim_grads_params >/dev/null ||
    fail "the checkpoints differ"
ranks 2 again recipe.yaml parallel.data_parallel_sharding=optim_grads \
    checkpoint.load=save_optim_grads_params/step_00000008 \
    checkpoint.save=save_again export.hf=hf_again
cmp hf_optim/model.safetensors hf_again/model.safetensors ||
    fail "another model after another level"
ranks 2 shared eval recipe.yaml checkpoint.load=save_optim \
    parallel.data_parallel_sharding=optim_grads_params
said shared >shared.said
tail -n 3 optim.said | cmp - shared.said || fail "an evaluation alone differs"

# From a Hugging Face directory, on three ranks.
for level in optim optim_grads_params; do
    ranks 3 from_$level recipe.yaml init.from_hf=hf_optim \
        parallel.data_parallel_sharding=$level train.global_batch_size=3 \
        export.hf=hf_from_$level checkpoint.save=save_from_$level
done
cmp hf_from_optim/model.safetensors \
    hf_from_optim_grads_params/model.safetensors ||
    fail "another model from a Hugging Face directory"
