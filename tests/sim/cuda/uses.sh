#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: uses.sh BUILD SOURCE MPIRUN [all]: what is done beside training, on simulated
# devices of two processes: evaluation, sampled text, logged tensors, a profile;
# all: checkpoints that go from layout to layout and to the processor and back.
# Each against one rank of the processor.
set -u
build=$1
source=$2
mpirun=$3
all=${4:-}
. "$source/tests/in_place.sh"
export CUDASIM_DEVICES=2

# ranks COUNT NAME ARGUMENTS...: a log in NAME_log
ranks() {
    local count=$1 name=$2 got=0
    shift 2
    timeout -k 5 100 "$mpirun" --oversubscribe -n "$count" \
        "$build/loongrun_cudasim" recipe.yaml log.dir="${name}_log" "$@" \
        >out 2>err || got=$?
    [ "$got" = 0 ] || fail "$name: exit $got"
    ! grep -q '^cudasim:' err || fail "$name: what the device says"
    cat out err >"$name.said"
}

# figures NAME FIRST LAST: step/which, value, size: of losses and norms,
# evaluations and tensors, in one order. The largest element of a tensor has the
# roundings of sums of its norm's size.
figures() {
    awk -v first="$2" -v last="$3" '
        function field(key,   at) {
            if (!match($0, "\"" key "\": *[^,}]*")) return ""
            at = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*: */, "", at)
            gsub(/"/, "", at)
            return at
        }
        {
            step = field("step")
            if (step < first || step > last) next
            what = field("tensor") "." field("of") field("eval")
            norm = field("norm")
            count = split("loss grad_norm norm max not_finite", keys, " ")
            for (k = 1; k <= count; k++) {
                value = field(keys[k])
                size = keys[k] == "max" ? norm : value
                if (value != "") print step "/" what "." keys[k], value, size
            }
        }' "$1_log/metrics.jsonl" | sort -k 1,1
}

# alike NAME FIRST LAST COUNT: as many figures as there must be, those of one
# rank: sums of tens of products of one type in other orders
alike() {
    figures one "$2" "$3" >one.figures
    figures "$1" "$2" "$3" >own.figures
    join one.figures own.figures | awk -v count="$4" '
        {
            d = $2 - $4
            if (d < 0) d = -d
            if (d > 64 / 16777216 * $3) { print; bad = 1 }
        }
        END { if (NR != count) print NR " figures, not " count
              exit bad || NR != count }' || fail "figures of $1"
}

"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs/devices" >/dev/null
cat >recipe.yaml <<'YAML'
model:
  foundation:
    family: qwen3
    num_layers: 2
    hidden_size: 16
    ffn_hidden_size: 24
    num_attention_heads: 2
    vocab_size: 257
    make_vocab_size_divisible_by: 2
    max_position_embeddings: 8
    activation: swiglu
    untie_embeddings_and_output_weights: true
precision: {params_dtype: fp32}
data:
  seq_length: 8
  tokenizer: bytes
  train: [{path: text}]
  validation: [{path: text, name: same}]
train: {micro_batch_size: 1, global_batch_size: 2, train_iters: 3}
optimizer: {lr: 1e-2, lr_decay_iters: 4}
eval:
  interval: 1
  iters: 1
  sample: {prompts: [The ranks], max_new_tokens: 2, temperature: 0}
log: {interval: 1, tensors: ["layers.*.mlp"], tensors_interval: 1}
checkpoint: {async: false}
resume: {override: [train, device]}
comm: {timeout: 60s}
YAML
pp='parallel.pipeline_model_parallel_size=2'
tp='parallel.tensor_model_parallel_size=2'
sp='parallel.sequence_parallel=true'

# sampled NAME STEP: the same text as one rank
sampled() {
    grep -a '^sample' "$1.said" |
        cmp - <(grep -a '^sample' one.said | sed -n "$2p") ||
        fail "the text that $1 samples"
}

ranks 1 one device=cpu

# A profile: a device waits for each step and each message. Sends of rank 0: two
# samples, as many to evaluate, two tokens.
ranks 2 timed device=cuda $pp train.train_iters=1 --profile trace.json
alike timed 1 1 39
sampled timed 1
grep -q '^send  *6 ' timed.said || fail '6 messages sent'
grep -q '^receive  *2 ' timed.said || fail '2 messages received'
grep -q 'traceEvents' trace.json || fail 'no trace'

# Attention by cuDNN, in a program that is told on the device how long samples
# are, and is loaded behind others that have run.
ranks 1 fused device=cuda train.attention_backend=fused train.train_iters=1 \
    precision.params_dtype=bf16 train.micro_batch_size=2
[ "$all" = all ] || exit 0

# Device ranks of a pipeline begin, ranks of the processor go on in another
# layout, devices in a third one finish.
ranks 2 first device=cuda $pp train.train_iters=1 checkpoint.save=save
alike first 1 1 39
sampled first 1
ranks 2 second device=cpu $tp train.train_iters=2 checkpoint.save=save \
    checkpoint.load=auto
alike second 2 2 39
sampled second 2
ranks 2 third device=cuda $tp $sp checkpoint.load=save
alike third 3 3 39
sampled third 3
