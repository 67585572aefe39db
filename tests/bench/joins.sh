#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: joins.sh BUILD [LAUNCHES [STEPS]]: what joins make of a step of two ranks
# of one thread, a pipeline of two stages: first what a dry run says, then the
# steps of interleaved launches but each one's first, a line each: the shortest
# and the median in milliseconds.
set -eu
build=$(realpath "$1")
launches=${2:-5}
steps=${3:-4}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1
mkdir tokenizer
python3 - <<'END'
import json
import random
import struct
import zlib

random.seed(3)


def png(path, width, height):
    rows = b"".join(b"\0" + random.randbytes(3 * width) for _ in range(height))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    open(path, "wb").write(
        b"\x89PNG\r\n\x1a\n" +
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
        chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


with open("texts.jsonl", "w") as f:
    for i in range(64):
        # 56 to 64 blocks of 28 pixels: 1792 to 2048 patches.
        blocks = random.randint(56, 64) * 8
        width = random.choice([16, 20, 24, 28])
        png("p%d.png" % i, width * 28, blocks // width * 28)
        text = "".join(random.choice("abcdefgh ") for _ in range(1500))
        f.write(json.dumps({"text": "<image>" + text,
                            "images": ["p%d.png" % i]}) + "\n")
letters = {c: i for i, c in enumerate("abcdefgh ")}
letters["<image>"] = 9
json.dump({"version": "1.0", "model": {"type": "BPE", "vocab": letters,
                                       "merges": []},
           "added_tokens": [{"id": 9, "content": "<image>", "special": True}],
           "pre_tokenizer": None, "decoder": None, "normalizer": None,
           "post_processor": None}, open("tokenizer/tokenizer.json", "w"))
json.dump({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14,
           "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136,
           "max_pixels": 2048 * 196}, open("processor.json", "w"))
END
cat >recipe.yaml <<'END'
seed: 11
device: cpu
model:
  image_encoder: {family: qwen2_vl_vision, num_layers: 3, hidden_size: 128,
    num_attention_heads: 2, patch_size: 14}
  image_projector: {family: patch_merger}
  foundation: {family: qwen2, num_layers: 4, hidden_size: 256,
    ffn_hidden_size: 768, num_attention_heads: 4, num_query_groups: 2,
    vocab_size: 16, max_position_embeddings: 2048, mrope_section: [8, 12, 12]}
precision: {params_dtype: bf16}
data: {train: [{path: texts.jsonl}], tokenizer: tokenizer, image_token: <image>,
  image_processor: processor.json, seq_length: 2048, max_images: 1,
  max_patches: 2048}
train: {global_batch_size: 8, train_iters: 4}
parallel: {pipeline_model_parallel_size: 2}
optimizer: {lr: 1e-4}
log: {interval: 1}
END
joins=(alone coupled phases two_pass bubbles)
alone=(model.image_encoder.ranks=0 model.image_projector.ranks=0)
"$build/loongrun" recipe.yaml --dry-run --ranks 2 "${@:4}" 2>&1 |
    sed -n '/^predicted/,$p'
for ((i = 0; i < launches; i++)); do
    for join in "${joins[@]}"; do
        keys=(join=$join)
        [ $join != alone ] || keys=(join=coupled "${alone[@]}")
        mpirun -n 2 "$build/loongrun" recipe.yaml "train.train_iters=$steps" \
            "${keys[@]}" "${@:4}" 2>&1 |
            sed -nE 's/^step ([0-9]+)\/.* ([0-9.]+) ms .*/\1 \2/p' |
            awk -v j=$join '$1 > 1 { print j, $2 }' >>steps
    done
done
for join in "${joins[@]}"; do
    grep "^$join " steps | sort -n -k 2 | awk '{ t[NR] = $2 } END {
        printf "%-8s %.0f %.0f\n", $1, t[1], t[int((NR + 1) / 2)] }'
done
