#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: balance.sh BUILD [LAUNCHES]: mean step of 2 ranks of one thread on rows of
# mixed lengths, micro-batches dealt by cost (true) and as drawn (false), in
# interleaved launches; a line each: milliseconds, of which rank 0 waits.
set -eu
build=$(realpath "$1")
launches=${2:-7}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1
python3 - <<'END'
import math
import random

random.seed(5)
texts = []
for _ in range(600):
    n = 350 * math.exp(random.gauss(0, 1))
    n *= 8 if random.random() < 0.05 else 1
    n = int(min(max(n, 8), 8190))
    texts.append("".join(random.choice("abcdefghijklmnop") for _ in range(n)))
open("mixed.txt", "w").write("\n\n".join(texts) + "\n")
END
"$build/loong-data" index --tokenizer bytes --split-blank-lines --quiet \
    --output-prefix mixed mixed.txt >/dev/null
cat >recipe.yaml <<'END'
seed: 11
model: {foundation: {family: llama, num_layers: 2, hidden_size: 64,
  ffn_hidden_size: 128, num_attention_heads: 4, vocab_size: 257,
  max_position_embeddings: 8192}}
precision: {params_dtype: bf16}
data: {train: [{path: mixed, source: documents}], seq_length: 4096,
  packing: best_fit, truncation: right}
train: {global_batch_size: 8, epochs: 1}
optimizer: {lr: 3e-4}
log: {interval: 1}
END
for ((i = 0; i < launches; i++)); do
    for balance in true false; do
        mpirun -n 2 "$build/loongrun" recipe.yaml data.balance=$balance 2>&1 |
            sed -nE 's/^step .* ([0-9.]+) ms .*comm ([0-9.]+)%.*/\1 \2/p' |
            awk -v b=$balance '{ s += $1; w += $1 * $2 / 100 }
                END { printf "%-5s %.0f %.0f\n", b, s / NR, w / NR }'
    done
done
