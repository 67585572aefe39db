#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What people do at the edges of a run: an older step exported, a loss mask that
# leaves nothing, another directory's checkpoint, output that nobody reads.
# usage: edges.sh BUILD
set -u
build=$(readlink -f "$1")
fixtures=$(dirname "$(readlink -f "$0")")/../golden/fixtures
. "$(dirname "$(readlink -f "$0")")/expect.sh"
run() { "$build/loongrun" r.yaml "$@"; }
ckpt() { "$build/loong-ckpt" "$@"; }

for i in $(seq 400); do printf 'document %d of this text\n\n' "$i"; done > t.txt
cat > r.yaml <<'E2'
model:
  foundation: {family: llama, num_layers: 1, hidden_size: 16,
    ffn_hidden_size: 32, num_attention_heads: 2, vocab_size: 257,
    max_position_embeddings: 32, hidden_dropout: 0.1}
data: {seq_length: 16, train: [{path: made/here/d}]}
train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 4}
optimizer: {lr: 1e-2}
checkpoint: {save: s, save_interval: 2, keep_last: 0}
device: cpu
E2

# directories are made
expect 0 "400 documents" "$build/loong-data" index --tokenizer bytes \
    --split-blank-lines --append-eod --output-prefix made/here/d t.txt
expect 73 "cannot write 't.txt/d'" "$build/loong-data" index \
    --tokenizer bytes --output-prefix t.txt/d t.txt

# the step that was loaded is exported, not the newest
expect 0 "finished at step 4" run
expect 0 "exported" run checkpoint.load=s/step_00000002 train.train_iters=2 \
    export.hf=old
expect 0 "equal" ckpt diff s/step_00000002 old
expect 1 "differ" ckpt diff s/step_00000004 old
expect 0 "exported" run checkpoint.load=s checkpoint.save=other export.hf=new
expect 0 "equal" ckpt diff s/step_00000004 new

# an import is no step of a run; it is evaluated, and trained without moments
expect 2 "'s' has checkpoints of a run (step_0000000" ckpt import new s
expect 0 "" ckpt import new imported
expect 0 "" ckpt import new imported
expect 2 "'imported' holds another model (llama with 10832 parameters; this" \
    ckpt import "$fixtures/gpt2_tied" imported
expect 0 "equal" ckpt diff new imported
expect 2 "'./old' is a Hugging Face directory" ckpt import new ./old
expect 0 "ppl" "$build/loongrun" eval r.yaml checkpoint.load=imported \
    "data.validation=[{name: v, path: made/here/d}]" ~optimizer.lr \
    ~train.train_iters ~train.global_batch_size
expect 2 "checkpoint.no_load_optim" run checkpoint.load=imported \
    checkpoint.save=third
expect 0 "finished at step 4" run checkpoint.load=imported \
    checkpoint.save=third checkpoint.no_load_optim=true
expect 2 "'s' is a native checkpoint" ckpt export s s
expect 2 "eos_token_id: 257, the vocabulary has 0 to 256" \
    ckpt export third out --eos 257

# the recipe holds against config.json, with a word
cat > hf.yaml <<'E2'
init: {from_hf: new}
data: {seq_length: 16, train: [{path: made/here/d}]}
train: {global_batch_size: 4, train_iters: 1}
optimizer: {lr: 1e-2}
device: cpu
E2
expect 0 "num_attention_heads: 4 (command line) holds, new/config.json means 2" \
    "$build/loongrun" hf.yaml model.foundation.num_attention_heads=4 \
    model.foundation.kv_channels=4 model.foundation.num_query_groups=4
expect 0 "rope_scaling.type: linear (command line) holds, new/config.json means" \
    "$build/loongrun" hf.yaml +model.foundation.rope_scaling.type=linear \
    +model.foundation.rope_scaling.factor=2
expect 0 "ONEDNN_MAX_CPU_ISA is BOGUS: not a level that oneDNN knows" \
    env ONEDNN_MAX_CPU_ISA=BOGUS "$build/loongrun" hf.yaml
expect 2 "softmax_scale: found 0, a positive number wanted" \
    "$build/loongrun" hf.yaml +model.foundation.softmax_scale=0

# what an export would refuse or overwrite is told before the training
check() { "$build/loongrun" hf.yaml --check checkpoint.save=fifth "$@"; }
ln -s new link
expect 2 "export.hf: './link/' is the directory of init.from_hf" \
    check export.hf=./link/
expect 2 "export.hf: 'new' is the directory of model.from_hf" \
    check ~init model.from_hf=link export.hf=new
expect 2 "model type ernie4_5 has true" check export.hf=hf5 export.as=ernie4_5
expect 0 "it can run here" check export.hf=hf5
cp -r new cut && printf '{"model":' > cut/tokenizer.json
expect 1 "cut/tokenizer.json: column" check init.from_hf=cut
expect 1 "cut/tokenizer.json: column" ckpt import cut cutn
expect 1 "wanted by init.from_hf (command line)" \
    "$build/loongrun" hf.yaml init.from_hf=cut checkpoint.save=fifth

# lengths and splits that leave nothing
expect 2 "train.train_tokens: 10, less than a sample" \
    run ++train.train_iters=null train.train_tokens=10 checkpoint.save=fourth
"$build/loong-data" index --tokenizer bytes --quiet --output-prefix one t.txt
expect 1 "data.validation_split 0.05 keeps whole documents" \
    run "data.train=[{path: one}]" data.validation_split=0.05 \
    checkpoint.save=fourth

# somebody who stops reading
code=0
run --explain 2>err | head -n 1 >/dev/null
grep -q "lost" err && { cat err; fail "--explain | head: lost"; }

finish
