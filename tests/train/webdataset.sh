#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: webdataset.sh BUILD SOURCE: tar shards of conversations with pictures.
# What is written is the same each time; a training on it has the losses of one
# on the JSON lines that were written; metadata of megatron-energon choose
# shards and samples; what is broken is refused by name. The same against
# megatron-energon itself: tests/oracle/energon.py.
set -u
build=$1
source=$2
golden=$source/tests/golden/vl_chat
pictures=$source/tests/fixtures/images
videos=$source/tests/fixtures/videos
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$place/cache
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
data() { "$build/loong-data" "$@" >out 2>&1; }
# inspect PATH [OPTION...]
inspect() {
    data chat inspect --tokenizer "$golden/${model:-llava}" \
        --image-token "${token:-<image>}" --ids --count 99 "$@"
}
# refused WHY PATH [OPTION...]
refused() {
    local why=$1
    shift
    inspect "$@" && fail "$*: is read"
    grep -qF -- "$why" out || fail "'$why' is not said of $1: $(tail -n 2 out)"
}
write() { data webdataset --image-root "$pictures" "$@"; }

# ---- what is written ---------------------------------------------------------

records=("$golden/openai.jsonl" "$golden/sharegpt.jsonl")
for out in one two; do
    write --out $out --maxcount 2 --split train=0.6,val=0.4 "${records[@]}" ||
        fail "writing: $(tail -n 2 out)"
done
grep -qx 'two: 5 samples with 6 pictures and videos in 3 shards, [0-9]* bytes' \
    out || fail "what is told: $(cat out)"
grep -qF "'val' has 1 samples, 20.0 %, in 1 shards; parts are whole shards" out ||
    fail "a part of another share is not told: $(cat out)"
diff -r one two || fail "the same records make other bytes"
tar tf one/shard-000000.tar >names
[ "$(tr '\n' ' ' <names)" = '000000000.json 000000000.png 000000001.json '`
    `'000000001.00.jpg 000000001.01.jpg ' ] || fail "members: $(cat names)"
tar xOf one/shard-000000.tar 000000000.png | cmp - "$pictures/rgb.png" ||
    fail "a picture's bytes"
# Where samples begin: 512 bytes in front of their .json.
[ "$(od -An -td8 one/shard-000001.tar.idx | tr -s ' \n' ' ')" = \
    "$(tar tRvf one/shard-000001.tar | awk '/json|NUL/ { sub(":", "", $2)
        printf " %d", 512 * $2 } END { print " " }')" ] ||
    fail "index: $(od -An -td8 one/shard-000001.tar.idx)"
write --out one "${records[@]}" && fail "a directory that is full"
grep -q "'one': a directory that is absent or empty is wanted" out ||
    fail "a directory that is full: $(cat out)"
write --out none --split train=1,val=1 "${records[@]}" &&
    fail "one shard for two parts"
grep -q "of 1 shards none is left for 'val'" out || fail "parts: $(cat out)"
for split in train , train=1,=2 train=inf train=1,val=0; do
    write --out none --split $split lost.jsonl && fail "the split '$split'"
    grep -q "split '$split': must be as train=0.9" out ||
        fail "a split is not looked at first: $(cat out)"
done
echo '{"messages": [], "images": ["none.png"]}' >lost.jsonl
write --out none lost.jsonl && fail "a picture that is not there"
grep -q 'lost.jsonl:1: wants .*/none.png' out || fail "lost: $(cat out)"
[ ! -e none ] || fail "a part of a set is left: $(find none)"
# Numbers as they are written, which 64 bits do not have.
echo '{"image":7,"a":[0.1,-1E+5],"b 2\\":"\"3","n":123456789012345678901}' \
    >numbers.jsonl
write --out numbered numbers.jsonl || fail "numbers: $(cat out)"
tar xOf numbered/shard-000000.tar | cmp - <(tr -d '\n' <numbers.jsonl) ||
    fail "numbers: $(tar xOf numbered/shard-000000.tar)"
# ids NAME PATH [OPTION...]: of all samples, and the sizes of their pictures.
ids() {
    local name=$1
    shift
    inspect "$@" || fail "$*: $(tail -n 3 out)"
    sed -n 's/^  picture at .*,/P/p; /^[+ ] *[0-9]/p' out >"$name"
}
ids tar_ids one
ids val_ids two/shard-000002.tar
ids json_ids "${records[0]}" --image-root "$pictures"
ids more_ids "${records[1]}" --image-root "$pictures"
[ -s val_ids ] && cat json_ids more_ids | cmp - <(cat tar_ids val_ids) ||
    fail "ids of shards"

# ---- a training --------------------------------------------------------------

# losses NAME KEY=VALUE...
losses() {
    local name=$1
    shift
    "$build/loongrun" "$golden/start.yaml" data.tokenizer="$golden/llava" \
        train.global_batch_size=2 train.train_iters=3 optimizer.lr=1e-2 \
        log.interval=1 '~export' log.dir="log_$name" "$@" \
        >"$name.log" 2>&1 </dev/null ||
        fail "training $name: $(tail -n 5 "$name.log")"
    sed -n 's/.*"loss":\([^,]*\),.*"\(grad_norm\|perplexity\)":\([^,]*\),.*/\1 \3/p' \
        "log_$name/metrics.jsonl" >"$name.losses"
    [ "$(wc -l <"$name.losses")" -ge 3 ] || fail "$name: no losses"
}
write --out shards --maxcount 3 "${records[0]}"
losses tar data.train='[shards]' data.validation='[{name: val, path: one}]'
losses json data.train="[${records[0]}]" data.image_root="$pictures" \
    data.validation="[{name: val, path: ${records[1]}}]"
cmp tar.losses json.losses ||
    fail "losses are others: $(paste tar.losses json.losses)"
# Sizes of pictures are kept with the conversations: rows are made of them
# without a file, a step sees that a file is another one.
mkdir own
cp "$pictures"/{rgb.png,j420.jpg,tall.jpg} own
# own_pictures [OPTION...]
own_pictures() {
    "$build/loongrun" "$golden/start.yaml" data.tokenizer="$golden/llava" \
        data.train="[${records[0]}]" data.image_root=own '~export' \
        train.global_batch_size=3 "$@" >own.log 2>&1 </dev/null
}
own_pictures --check || fail "own pictures: $(tail -n 3 own.log)"
mkdir gone
mv own/* gone
own_pictures data.packing=best_fit data.row_images=4 \
    train.global_batch_size=1 && fail "pictures that are gone"
grep -q 'packing best_fit: [12] row' own.log ||
    fail "rows of sizes that were kept: $(tail -n 3 own.log)"
for name in rgb.png j420.jpg tall.jpg; do
    cp "$pictures/one.png" own/$name
done
own_pictures && fail "pictures of another size are read"
grep -q "pixels, [0-9]* x [0-9]* when the conversations were" own.log ||
    fail "pictures that changed: $(tail -n 3 own.log)"
# Pictures of texts may be members, too.
echo '{"text": "<image> a", "image": "shards/shard-000000.tar/000000000.png"}' \
    >member.jsonl
echo "{\"text\": \"<image> a\", \"image\": \"$pictures/rgb.png\"}" >file.jsonl
for kind in member file; do
    losses $kind train.global_batch_size=1 \
        data.train="[{path: $kind.jsonl, source: image_text}]"
done
cmp member.losses file.losses || fail "a member as a picture of a text"
if [ -e "$build/libloong_video.so" ]; then
    write --out films --image-root "$pictures" "$golden/videos.jsonl"
    model=qwen2_vl token='<|image_pad|>'
    see=(--video-token '<|video_pad|>' --video-frames 2)
    ids film_ids films "${see[@]}"
    ids json_ids "$golden/videos.jsonl" --image-root "$pictures" "${see[@]}"
    [ -s film_ids ] && cmp film_ids json_ids || fail "videos of a shard"
    model='' token=''
fi

# ---- what is read ------------------------------------------------------------

mkdir given
talk() {
    echo '{"messages": [{"role": "user", "content": "'"$1"'"},' \
        '{"role": "assistant", "content": "b"}]'"${2-}}"
}
# pack TAR NAME=FILE...: members in this order.
pack() {
    local tar=$1 member
    shift
    rm -rf given/*
    for member; do
        mkdir -p "$(dirname "given/${member%%=*}")"
        cp "${member#*=}" "given/${member%%=*}"
    done
    (cd given && tar --format=pax -cf "../$tar" "${@%%=*}")
}
talk '<image>a<image>' >talk
talk '<image>a<image>' ', "images": ["b.png", "x/1.a.jpg"]' >named
echo 'A tree.' >caption
echo '{"context": "What?", "answers": ["no", "yes"], "answer_weights": [1, 2]}' \
    >question
echo '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "b"}]' \
    >list
png=$pictures/rgb.png jpg=$pictures/tall.jpg
# LoongForge's: what is listed stands in no other order, "10_" behind "9_".
talk '<image>a<image>' ', "media": "image", "name": ["9_b.png", "10_a.jpg"]' |
    sed s/messages/texts/ >forge
pack forge.tar image_0.9_b.png="$png" image_0.10_a.jpg="$jpg" image_0.json=forge
inspect forge.tar || fail "texts and names: $(tail -n 3 out)"
sed -n 's/^  picture at .*tar.\(i[^,]*\),.*/\1/p' out | tr '\n' ' ' >names
[ "$(cat names)" = 'image_0.9_b.png image_0.10_a.jpg ' ] ||
    fail "texts and names: $(cat names)"
pack a.tar x/0.json=talk x/0.b.png="$png" x/0.a.jpg="$jpg" x/1.json=named \
    x/1.b.png="$png" x/1.a.jpg="$jpg" __meta__/a.txt=caption x/2.txt=caption \
    x/2.jpg="$jpg" x/3.json=question x/3.png="$png" x/4.json=list
inspect a.tar || fail "formats of samples: $(tail -n 3 out)"
sed -n 's/^  picture at .*tar.\(x[^,]*\),.*/\1/p' out | tr '\n' ' ' >names
[ "$(cat names)" = 'x/0.a.jpg x/0.b.png x/1.b.png x/1.a.jpg x/2.jpg x/3.png ' ] ||
    fail "the order of members: $(cat names)"
grep -q '^samples: 5,' out || fail "samples: $(grep samples: out)"
head -c 5000 a.tar >cut.tar
refused 'cut.tar: ends within x/0.b.png' cut.tar
# What is hidden, a cut between members, a tar file behind another, and links.
pack whole.tar 0.json=list 1.json=list 2.json=list .3.json=caption ./._0.json=caption
inspect whole.tar && grep -q '^samples: 3,' out || fail "hidden members: $(cat out)"
head -c 4096 whole.tar >cut.tar
tar tf cut.tar | grep -qx 1.json || fail "no cut between members: $(tar tf cut.tar)"
refused 'cut.tar: ends without its end-of-archive block: it was cut off' cut.tar
cat whole.tar whole.tar >twice.tar
refused 'twice.tar: has more behind its end-of-archive block at ' twice.tar
cp talk 0.json
cp "$png" 0.png
ln 0.png 1.png
ln -s 0.png 2.png
tar cf hard.tar 0.json 0.png 1.json 1.png 2>/dev/null
tar cf soft.tar 0.json 2.png
refused 'hard.tar: 1.png: is a link, a file is wanted' hard.tar
refused 'soft.tar: 2.png: is a link, a file is wanted' soft.tar
gzip -k a.tar
refused 'tar files are read that are not compressed' a.tar.gz
talk '<image>' ', "image": "c.png"' >lost
pack lost.tar 0.json=lost 0.png="$png"
refused "lost.tar:1: there is no picture 'c.png' in its sample, which has 0.png" \
    lost.tar
talk 'a' >blind
pack blind.tar 0.json=blind 0.png="$png"
refused 'blind.tar:1: the sample has 1 pictures, of which 0 stand' blind.tar
pack bare.tar 0.png="$png"
refused "bare.tar:1: the sample '0' has no .json and no .txt; its members are: 0" \
    bare.tar
# energon LINE...: .nv-meta/dataset.yaml of a set of a.tar and b.tar.
energon() { printf '%s\n' "$@" >set/.nv-meta/dataset.yaml; }
mkdir -p set/.nv-meta
for i in 0 1; do
    pack "set/s$i.tar" "${i}0.json=question" "${i}0.png=$png" \
        "${i}1.json=question" "${i}1.jpg=$jpg"
done
type='sample_type: {__module__: megatron.energon, __class__: VQASample}'
map='field_map: {image: "jpg,png", context: "json[context]", answers:'
energon "$type" "$map \"json[answers][x],json[answers][1]\"}"
echo 'split_parts: {train: ["s{0..1}.tar"], val: [s1.tar]}
exclude: [s0.tar/01]' >set/.nv-meta/split.yaml
echo '{"shard_counts": {"s0.tar": 2, "s1.tar": 2}}' >set/.nv-meta/.info.json
inspect set || fail "metadata: $(tail -n 3 out)"
sed -n 's/^  picture at .*\(s..tar.*\),.*/\1/p' out | tr '\n' ' ' >names
[ "$(cat names)" = 's0.tar/00.png s1.tar/10.png s1.tar/11.jpg ' ] ||
    fail "shards of a part: $(cat names)"
[ "$(sed -n 's/^+ .* \([^ ]*\)$/\1/p' out | tr -d '\n')" = yesyesyes ] ||
    fail "fields: $(grep '^+' out)"
energon "$type" "$map \"json[reply]\"}"
refused "set/s0.tar:1: the sample '00' has no json[reply], of which .nv-meta" set
for path in 'json[answers' 'json, txt'; do
    energon "$type" "$map \"$path\"}"
    refused "field_map.answers: '$path', endings are wanted as in" set
done
energon "$type" 'sample_loader: sample_loader.py:sample_loader'
refused "'sample_loader: sample_loader.py:sample_loader' is not read; allowed" set
energon "${type/VQA/OCR}" "$map json}"
refused "the class 'OCRSample' of 'megatron.energon'; allowed are Crude" set
energon '__class__: CrudeWebdataset' '__module__: megatron.energon'
sed -i 's/2}/3}/' set/.nv-meta/.info.json
refused 's1.tar: has 2 samples, .nv-meta says 3' set
# Names as Python's braceexpand makes them of "exclude", by what is told of those
# that are no shards.
cp whole.tar set/whole.tar
echo '{"shard_counts": {"whole.tar": 3}}' >set/.nv-meta/.info.json
# excludes VALUE: the same, of split.yaml.
excludes() {
    printf 'split_parts: {train: [whole.tar]}\nexclude: %s\n' "$1" \
        >set/.nv-meta/split.yaml
}
excludes '["s{8..10}{a,b{1..0}}", "{08..10..2}", "{-1..1}", "{b..Y..2}", "a{,x}",
    whole.tar0, whole.tar/7]'
inspect set || fail "braces: $(tail -n 3 out)"
sed -n "s/.*nv-meta: '\(.*\)', which is excluded, is no shard.*/\1/p" out |
    tr '\n' ' ' >names
[ "$(cat names)" = 's8a s8b1 s8b0 s9a s9b1 s9b0 s10a s10b1 s10b0 08 10 -1 0 1 '`
    `'b Z a ax whole.tar0 ' ] || fail "braces: $(cat names)"
grep -q 'whole.tar: has 0 of the 1 samples that .nv-meta excludes from it' out ||
    fail "a sample that is not there: $(cat out)"
for name in '{0..b}' 's{0..9'; do
    excludes "[\"$name\"]"
    refused "'$name': braces are ranges {000..011}, {0..10..2}, {a..f}" set
done
excludes whole.tar
refused "split.yaml:2: 'exclude' is to be a list of names" set
# Metadatasets: files of data sets, by weight or by repetitions.
# mixes LINE...: the split "train" of one.
mixes() { printf '%s\n' 'splits:' ' train:' "$@" >mix.yaml; }
# shares KEY=VALUE...: of the data that a run reads.
shares() {
    "$build/loongrun" "$golden/start.yaml" data.tokenizer="$golden/llava" \
        '~export' --check "${@-data.train=[mix.yaml]}" >mix.log 2>&1 </dev/null
    sed -n 's/^ *\([0-9.]* % .*\): \([0-9]*\) samples.*/\1 \2/p' mix.log |
        tr '\n' ','
}
# no_mix WHY KEY=VALUE...
no_mix() {
    local why=$1
    shift
    shares "$@" >names
    grep -qF -- "$why" mix.log || fail "'$why' is not said: $(tail -n 2 mix.log)"
}
mixes '  blend: [{path: two, weight: 3, split_part: val}, {path: sub/in.yml}]'
mkdir -p sub
sed 's/blend:.*/blend: [{path: ..\/one, subset: {range: [40%, end]}},'`
    `' {path: ..\/two, weight: 3}]/' mix.yaml >sub/in.yml
[ "$(shares)" = '75.0 % two 1,6.2 % sub/../one 3,18.8 % sub/../two 4,' ] ||
    fail "a blend: $(shares) $(tail -n 2 mix.log)"
no_mix "'mix.yaml' has weights of its own" data.train='[mix.yaml, one]'
mixes '  blend_epochized: [{path: two, repetitions: 3}, {path: one}]'
[ "$(shares)" = '75.0 % two 4,25.0 % one 4,' ] ||
    fail "repetitions: $(shares) $(tail -n 2 mix.log)"
no_mix "'mix.yaml' has repetitions" 'data.train=[{path: mix.yaml, weight: 1}]'
mixes '  blend: [{path: two}, {path: one, aux: {a: two}}]'
no_mix 'mix.yaml:3: aux: of a metadataset path,'
mixes '  blend: [{path: mix.yaml}]'
no_mix 'mix.yaml: 16 metadatasets name one another'
mixes '  blend: [{path: one, split_part: test}]'
no_mix "split_parts has no 'test', it has: train val"
echo '- one' >mix.yaml
no_mix "mix.yaml: is no metadataset: it has no map 'splits' with a 'train'"
[ $failures = 0 ] && echo passed
exit $((failures > 0))
