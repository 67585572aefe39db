#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: key_effects.sh BUILD SOURCE MPIRUN [PATTERN]: every key of the schema
# makes a difference. A run with the key (those of key_effects.txt) is compared
# with the same run without it; what differs must be
#   curve    the figures of metrics.jsonl that are not times
#   said     what it prints besides
#   files    the files that it leaves
#   export   the config.json that it exports
#   plan     what a dry run prints
#   time     nothing of these: the key decides of speed alone
#   refused  the run with the key ends with an error
set -u
build=$1
source=$2
mpirun=$3
pattern=${4:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$place/xdg
failures=0 count=0
: >given
index() {
    "$build/loong-data" index --tokenizer bytes --append-eod --quiet \
        --output-prefix "$@" >/dev/null || exit 2
}
index text --suffixes .md "$source/docs"
index more "$source/LICENSE"
grep . "$source/README.md" | cut -c1-20 | sed G >lines.txt
index short --split-blank-lines lines.txt
. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" "$place/captions"
. "$source/tests/train/texts_with_videos.sh"
write_videos "$source" "$place/videos"
. "$source/tests/train/conversations.sh"
write_conversations "$source" "$place/chat"
echo "{{ strftime_now('%d %b %Y') }}{% for m in messages %}
{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}" >chat/dated.jinja
mkdir -p pictures/a pictures/b
cp "$source"/tests/fixtures/images/{rgb,grey}.png pictures/a
cp "$source"/tests/fixtures/images/{j420,j444}.jpg pictures/b

m=model.foundation
base="device=cpu;training_phase=pretrain;precision.params_dtype=fp32;$m.family=qwen3;$m.num_layers=2
$m.hidden_size=32;$m.num_attention_heads=2;$m.vocab_size=257
$m.max_position_embeddings=64;data.seq_length=32;train.global_batch_size=2
train.train_iters=3;optimizer.lr=1e-2;log.interval=1;log.dir=log"
experts="$m.moe_ffn_hidden_size=16;$m.moe_router_topk=2"
latent="$m.family=deepseek_v3;$m.kv_lora_rank=16;$m.qk_head_dim=8"
latent="$latent;$m.qk_pos_emb_head_dim=4;$m.v_head_dim=12"
scaled="$m.kv_channels=64;$m.rope_scaling.factor=4"
scaled="$scaled;$m.rope_scaling.original_max_position_embeddings=16"
bands="$m.rope_scaling.low_freq_factor=1;$m.rope_scaling.high_freq_factor=4"
images="$m.family=ernie4_5_vl_moe;data.vision_token_ids=[32]"
declare -A words=(
    [MOE]="$m.family=qwen3_moe;$m.num_experts=4;$experts"
    [IMAGES]="$images;$m.num_experts=4;$experts"
    [GROUPS]="$latent;$m.num_experts=8;$experts"
    [MUON]="o.groups=[{scope: layers.*_proj, name: muon}, {scope: embed_tokens}\
, {scope: lm_head}, {scope: '*norm'}]"
    [MLA]="$latent;$m.q_lora_rank=20"
    [YARN]="$m.rope_scaling.type=yarn;$scaled"
    [LLAMA3]="$m.rope_scaling.type=llama3;$scaled;$bands"
    [VALIDATION]="data.validation=[{name: a, path: TEXT}];eval.iters=1"
    [SAMPLE]="VALIDATION;data.tokenizer=bytes;e.prompts=[The];e.max_new_tokens=2"
    [SHORT]="data.train=[{path: $place/short}]"
    [TEXT]=$place/text [MORE]=$place/more
    [LINES]="data.train=[{path: $place/short, source: documents}]"
    [PICTURES]="{path: $place/pictures, source: images}"
    [VIT]="~$m;v.family=vit;v.num_layers=1;v.hidden_size=32;v.patch_size=16
v.num_attention_heads=2;v.image_size=32;v.num_classes=2;~data.seq_length
data.train=[PICTURES];data.image_processor=$source/tests/fixtures/images/vit.json"
    [CAPTIONS]="v.family=clip_vision_model;v.num_layers=2;v.hidden_size=32
v.patch_size=16;v.num_attention_heads=2;v.image_size=32
model.image_projector.family=mlp_projector;$m.vocab_size=12;data.max_images=4
data.train=[{path: $place/captions/texts.jsonl, source: image_text}]
data.tokenizer=$place/captions;data.image_token=<picture>"
    [NATIVE]="v.family=qwen2_vl_vision;v.num_layers=1;v.hidden_size=32
model.image_projector.family=patch_merger
v.patch_size=14;v.num_attention_heads=2;$m.vocab_size=12;data.max_images=4
data.train=[{path: $place/captions/texts.jsonl, source: image_text}]
data.tokenizer=$place/captions;data.image_token=<picture>"
    [TOWERS]="NATIVE;model.video_encoder.family=qwen2_vl_vision
model.video_encoder.num_layers=1;model.video_encoder.hidden_size=32
model.video_encoder.patch_size=14;model.video_encoder.num_attention_heads=2
model.video_projector.family=patch_merger"
    [VIDEOS]="v.family=qwen2_vl_vision;v.num_layers=1;v.hidden_size=32
model.image_projector.family=patch_merger;$m.max_position_embeddings=96
v.patch_size=14;v.num_attention_heads=2;$m.vocab_size=34;data.max_images=4
$m.mrope_section=\"[2,3,3]\";data.seq_length=96;data.chat.cache=$place/cache
data.video_processor=$source/tests/fixtures/videos/small.json
data.train=[{path: $place/videos/texts.jsonl, source: chat}]
data.tokenizer=$place/videos;data.image_token=<picture>"
    [LARGER]="$source/tests/fixtures/videos/larger.json"
    [CHAT]="training_phase=sft;data.train=[$place/chat/chat.jsonl]
data.tokenizer=$place/chat/model;$m.vocab_size=512;data.seq_length=256
$m.max_position_embeddings=256"
    [DATED]=$place/chat/dated.jinja
    [PAIRS]=$place/chat/pairs.jsonl [SHARES]=$place/chat/sharegpt.jsonl
    [BROKEN]=$place/chat/broken.jsonl
    [TILES]="CAPTIONS;data.image_processor=$source/tests/fixtures/images/tiles.json"
    [PLAIN]="$source/tests/fixtures/images/vit_plain.json"
    [SAVED]=$place/saved/save [HF]=$place/saved/hf)
order=(VIDEOS LARGER CHAT PAIRS DATED SHARES BROKEN TILES CAPTIONS NATIVE VIT PICTURES PLAIN MUON MOE IMAGES GROUPS MLA YARN LLAMA3 SAMPLE VALIDATION SHORT TEXT MORE
    LINES SAVED HF)

# The keys of a text as overrides, one a line.
overrides() {
    local text=$1 word
    for word in "${order[@]}"; do
        text=${text//$word/${words[$word]}}
    done
    tr ';' '\n' <<<"$text" | sed -E "s/^m\./$m./; s/^p\./parallel./
        s/^v\./model.image_encoder./
        s/^o\./optimizer./; s/^e\./eval.sample./; /^$/d; s/^/++/; s/^[+]+~/~/"
}

# loongrun in a new directory $1, on $2 ranks, with the keys of the text $3.
launch() {
    local dir=$1 ranks=$2 start=() dry=() keys
    mapfile -t keys < <(overrides "$base
data.train=[{path: TEXT}]
$3")
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    [ "$where" != plan ] || dry=(--dry-run --elsewhere)
    mkdir "$dir" || exit 2
    echo 'version: 1' >"$dir/recipe.yaml"
    (cd "$dir" && "${start[@]}" "$build/loongrun" recipe.yaml "${keys[@]}" \
        "${dry[@]}" >out 2>err </dev/null)
}

# What can be seen of the run in directory $1, a file for each place.
observe() {
    (
        cd "$1" || exit 2
        local times='time|[a-z]+_per_[a-z]+|[a-z]+_share|gflops|memory_[a-z]+'
        grep -v save_bytes log/metrics.jsonl 2>/dev/null |
            sed -E "s/\"($times|seconds_left)\":[^,}]*,?//g" >curve
        grep -avE '^(step|finished| *from )' out >said
        cat err >>said
        find . -type f -size +0 | sed 's/tfevents.*/tfevents/' |
            grep -vE '/(out|err|said|curve|files|export)$' | sort >files
        cat hf/config.json >export 2>/dev/null
        cp said plan
    )
}

failed() {
    echo "FAILED: $1"
    sed -n '/^loongrun/,$ p' "$2" | grep -v '^---' | head -n 9
    failures=$((failures + 1))
}

# The keys of a text as --help-config names them; of lists of maps each counts.
names() {
    local key=${1%%=*}
    case $1 in
    *"=[{"*) grep -oE '[{,] *[a-z_]+:' <<<"$1" | tr -d '{,: ' |
        sed "s/^/$key[]./" ;;
    *) echo "$key" ;;
    esac
}

declare -A seen
where=
# compare RANKS KEY=VALUE[!CODE] NEEDS: with the key and without, in $where.
compare() {
    local ranks=$1 key=${2%!*} needs=$3 wanted=0 code=0 differ='' o
    [[ $2 != *!* ]] || wanted=${2#*!}
    count=$((count + 1))
    names "$(overrides "$key" | tail -n 1 | sed 's/^++//')" >>given
    local of=${seen["$ranks $where $needs"]:-} with=with$count
    if [ -z "$of" ] && [ "$where" != refused ]; then
        of=without$count
        seen["$ranks $where $needs"]=$of
        launch $of "$ranks" "$needs" || failed "the run without $key" $of/err
        observe $of
    fi
    launch $with "$ranks" "$needs
$key" || code=$?
    observe $with
    if [ "$where" = refused ]; then
        [ $code != 0 ] || failed "$key is not refused" $with/err
        return
    fi
    [ $code = "$wanted" ] || failed "$key, exit $code" $with/err
    ! grep -q 'nothing in this run reads it' $with/err ||
        failed "$key is not read" $with/err
    for o in curve said files export plan; do
        cmp -s $of/$o $with/$o || differ="$differ $o"
    done
    case "$where:$differ " in
    time:\ | *:*" $where "*) ;;
    *) failed "$key should show in $where, shows in:${differ:- nothing}" \
        /dev/null ;;
    esac
}

launch saved 1 'checkpoint.save=save
export.hf=hf' || failed 'the first run' saved/err
record='' needs=''
flush() {
    local ranks key
    read -r where ranks key <<<"$record"
    [ -z "$record" ] || [[ $record != *$pattern* ]] ||
        compare "$ranks" "$key" "$needs"
    record='' needs=''
}
while IFS= read -r line; do
    case $line in
    '#'* | '') ;;
    ' '*) needs=$needs${line#    }$'\n' ;;
    *)
        flush
        record=$line
        ;;
    esac
done <"$source/tests/train/key_effects.txt"
flush
if [ -z "$pattern" ]; then
    "$build/loongrun" --help-config | sed -n 's/^\([a-z][^ ]*\) .*/\1/p' |
        sort >schema
    missing=$(sort -u given | comm -23 schema -)
    [ -z "$missing" ] || {
        echo "FAILED: keys of the schema that are not here:" $missing
        failures=$((failures + 1))
    }
fi
echo "$count runs, $failures failures"
[ $failures = 0 ]
