#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: vl_chat.sh BUILD SOURCE MPIRUN: conversations with pictures. Ids and
# masks are those of transformers (tests/golden/vl_chat.py made them), what
# cannot be used is refused by name, and a fine-tuning of five lines makes an
# adapter of the language model alone, the same on two ranks.
set -u
build=$1
source=$2
mpirun=$3
golden=$source/tests/golden/vl_chat
pictures=$source/tests/fixtures/images
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 2
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$place/cache
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# inspect MODEL TOKEN FILE [OPTION...]
inspect() {
    local model=$1 token=$2 file=$3
    shift 3
    "$build/loong-data" chat inspect --tokenizer "$golden/$model" \
        --image-token "$token" --ids --count 99 "$@" "$file"
}
for pair in {llava,llava_onevision,qwen2_vl,internvl,glm4v,minicpmv4_6,ernie4_5_vl}\ {openai,sharegpt} "paligemma single"; do
    model=${pair% *} file=${pair#* } token='<image>'
    [ $model != qwen2_vl ] || token='<|image_pad|>'
    [ $model != internvl ] || token='<IMG_CONTEXT>'
    [ $model != glm4v ] || token='<|image|>'
    [ $model != ernie4_5_vl ] || token='<|IMAGE_PLACEHOLDER|>'
    how=()
    [ $model != minicpmv4_6 ] || {
        token='<|image_pad|>'
        how=(--image-processor "$golden/$model/preprocessor_config.json")
    }
    inspect $model "$token" "$golden/$file.jsonl" --image-root "$pictures" \
        "${how[@]}" |
        awk -v what="$model $file" '
            / tokens, .* learned$/ { if (line) print line; line = what }
            /^[+ ] +[0-9]+ / { line = line " " ($1 == "+" ? "+" $2 : $1) }
            END { print line }' >>ids
done
diff <(sort ids) <(sort "$golden/ids.txt") >/dev/null || {
    diff <(sort ids) <(sort "$golden/ids.txt") | head -n 4
    fail "ids or masks are others than those of transformers"
}

# Of an internvl_chat: the conversation that config.json names, and the tokens
# around pictures that no file names.
mkdir published
cp "$golden/internvl/tokenizer.json" published
echo '{"eos_token": "<|im_end|>"}' >published/tokenizer_config.json
for pair in 'internvl2_5 \n' 'internlm2-chat '; do
    echo "{\"model_type\": \"internvl_chat\", \"template\": \"${pair% *}\"}" \
        >published/config.json
    "$build/loong-data" chat inspect --tokenizer published --image-token \
        '<IMG_CONTEXT>' --image-root "$pictures" "$golden/openai.jsonl" >out 2>&1
    grep -qF "。<|im_end|>${pair#* }<|im_start|>user\n<img><IMG_CONTEXT></img>W" \
        out || fail "${pair% *}: $(tail -n 20 out)"
done

# Videos, in each of the forms that they take in a text.
videos=$source/tests/fixtures/videos
if [ -e "$build/libloong_video.so" ]; then
    for kind in Qwen2VL Qwen3VL InternVL LlavaOnevision Glm4v Ernie4_5_VLMoe \
        MiniCPMV4_6; do
        model=qwen2_vl token='<|image_pad|>' video='<|video_pad|>'
        chosen=(--video-fps 5)
        [[ $kind == Qwen* ]] || {
            model=internvl token='<IMG_CONTEXT>' video='<video>'
            chosen=(--video-frames 4)
        }
        [ $kind != LlavaOnevision ] ||
            model=llava_onevision token='<image>'
        [ $kind != Glm4v ] || {
            model=glm4v token='<|image|>' video='<|video|>'
            chosen=(--video-fps 5)
        }
        [ $kind != Ernie4_5_VLMoe ] || {
            model=ernie4_5_vl token='<|IMAGE_PLACEHOLDER|>'
            video='<|VIDEO_PLACEHOLDER|>' chosen=(--video-fps 5)
        }
        [ $kind != MiniCPMV4_6 ] || {
            model=minicpmv4_6 token='<|image_pad|>' video='<|video_pad|>'
            chosen=(--image-processor "$golden/$model/preprocessor_config.json")
        }
        inspect $model "$token" "$golden/videos.jsonl" --video-token "$video" \
            --image-root "$pictures" "${chosen[@]}" --video-processor \
            "$videos/$(tr '[:upper:]' '[:lower:]' <<<"$kind").json" |
            awk -v line=$kind '/^[+ ] +[0-9]+ / {
                line = line " " ($1 == "+" ? $2 : $1) } END { print line }'
    done >video_ids
    diff video_ids "$golden/video_ids.txt" >/dev/null ||
        fail "ids of videos are others than those of transformers"
    inspect ernie4_5_vl '<|IMAGE_PLACEHOLDER|>' "$golden/videos.jsonl" \
        --image-root "$pictures" --video-token '<|VIDEO_PLACEHOLDER|>' \
        --video-processor Ernie4_5_VLMoe >out 2>&1
    grep -qF '"draw_on_frames": false in the file' out ||
        fail "frames with their times: $(tail -n 2 out)"
    # An internvl_chat's, of which its config.json says the size.
    echo '{"model_type": "internvl_chat", "force_image_size": 56}' >chat.json
    inspect internvl '<IMG_CONTEXT>' "$golden/videos.jsonl" --video-processor \
        chat.json --video-token '<video>' --image-root "$pictures" >chat.out
    grep -q 'h264.mp4, 64 x 48, 8 frames' chat.out || fail "8 frames of a chat"
    sed 's/{/{"num_frames": 8, "do_sample_frames": true, /' \
        "$videos/internvl.json" >eight.json
    inspect internvl '<IMG_CONTEXT>' "$golden/videos.jsonl" --video-processor \
        eight.json --video-token '<video>' --image-root "$pictures" |
        cmp - chat.out || fail "videos of an internvl_chat"
    # Their token is enough where there are no pictures.
    tr '\n' ' ' >alone.jsonl <<'END'
{"messages": [{"role": "user", "content": [{"type": "video", "video":
"h264.mp4"}]}, {"role": "assistant", "content": "A"}]}
END
    "$build/loong-data" chat inspect --tokenizer "$golden/qwen2_vl" \
        --image-root "$videos" --video-token '<|video_pad|>' \
        --video-processor Qwen3VL alone.jsonl >out 2>&1
    grep -q 'video at [0-9]*: .*h264.mp4' out ||
        fail "a video without a token of pictures: $(tail -n 2 out)"
    head -c 3000 "$videos/h264.mp4" >cut.mp4
    cat >one.jsonl <<END
{"messages": [{"role": "user", "content": [{"type": "video", "video":
"./cut.mp4"}]}, {"role": "assistant", "content": "No."}]}
END
    tr '\n' ' ' <one.jsonl >two.jsonl
    inspect llava '<image>' two.jsonl --video-token '<image>' >out 2>&1
    grep -qF 'two.jsonl:1: ./cut.mp4: is no video that is known' out ||
        fail "a broken video is not named: $(tail -n 2 out)"
fi

# refused WHY RECORD
refused() {
    echo "$2" >one.jsonl
    inspect llava '<image>' one.jsonl >out 2>&1
    grep -qF "$1" out || fail "'$1' is not said of $2: $(tail -n 2 out)"
}
# user CONTENT [REST]: a record of what a user says.
user() {
    echo '{"messages": [{"role": "user", "content": '"$1"'}, {"role":' \
        '"assistant", "content": "No."}]'"${2-}"'}'
}
refused "there is no picture 'none.png'" \
    "$(user '[{"type": "image", "image": "none.png"}]')"
printf hello >text.png
: >empty.png
head -c 20 "$pictures/rgb.png" >short.png
refused 'one.jsonl:1: ./text.png: is no JPEG, PNG or WebP picture' \
    "$(user '[{"type": "image", "image": "./text.png"}]')"
refused 'one.jsonl:1: ./empty.png: is empty' \
    "$(user '"<image>"' ', "images": ["./empty.png"]')"
refused 'one.jsonl:1: ./short.png: no PNG header' \
    "$(user '"<image>"' ', "image": "./short.png"')"
refused 'paths of files are read' \
    "$(user '[{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]')"
refused 'messages[0]: picture 1 is an integer, a path is wanted' \
    "$(user '[{"type": "image", "image": 7}]')"
refused 'messages[0]: picture 1 is an integer, a path is wanted' \
    "$(user '"<image>"' ', "image": 7')"
refused "of type 'video', this source has texts and pictures" \
    "$(user '[{"type": "video", "video": "a.mp4"}]')"
refused 'lists 2 pictures, of which 1 stand' \
    "$(user '"<image> and?"' ", \"images\": [\"$pictures/rgb.png\", \"b.png\"]")"
refused 'picture 1 has no path, the record lists 0' \
    "$(user '[{"type": "image"}]')"
refused 'messages[0]: picture 1 has no path, the record lists 0' \
    "$(user '"<image> and?"')"
# What was refused for a picture is tried again when it is another file.
user '[{"type": "image", "image": "./text.png"}]' >one.jsonl
inspect llava '<image>' one.jsonl 2>&1 | grep -q 'is no JPEG' ||
    fail "a picture that is none"
cp "$pictures/rgb.png" text.png
inspect llava '<image>' one.jsonl 2>&1 | grep -q 'samples: 1' ||
    fail "a mended picture is refused"
inspect llava '<image>' one.jsonl --image-root none >out 2>&1
grep -q "data.image_root: 'none' is no directory" out ||
    fail "no directory: $(cat out)"
"$build/loong-data" chat inspect --tokenizer "$golden/llava" one.jsonl >out 2>&1
grep -q "of type 'image', this source has texts alone" out ||
    fail "a picture for texts: $(cat out)"
user '"What?"' ', "images": ["text.png"]' >one.jsonl
"$build/loong-data" chat inspect --tokenizer "$golden/llava" one.jsonl >out 2>&1
grep -q "one.jsonl:1: the record lists 1 pictures, this source has texts" out ||
    fail "a picture for texts: $(cat out)"

# Plain texts say it by the token, too.
echo '{"text": "<image> a tree", "image": "rgb.png"}' >one.jsonl
inspect llava '<image>' one.jsonl --image-root "$pictures" 2>&1 |
    grep -q 'picture at 0: .*rgb.png, [0-9]* x' || fail "a plain text"

# A model of random weights, published.
cp "$golden/start.yaml" .
run() {
    local name=$1 ranks=$2 start=()
    shift 2
    [ "$ranks" = 1 ] || start=("$mpirun" --oversubscribe -n "$ranks")
    "${start[@]}" "$build/loongrun" "$@" log.dir="log_$name" \
        precision.params_dtype=fp64 "data.image_root=$pictures" \
        "data.train=[$golden/openai.jsonl]" >"$name.out" 2>&1 </dev/null ||
        [ $? = "${status:-0}" ] || fail "$name: $(tail -n 5 "$name.out")"
}
run start 1 start.yaml data.tokenizer="$golden/llava"
grep -q '"image_token_index": 258' model/config.json ||
    fail "config.json does not say which token pictures are"
# show NAME MODEL RECIPE [KEY=VALUE...]: a page has what transformers has of all
# samples, a picture's rows as its one token.
show() {
    local name=$1 model=$2 recipe=$3
    shift 3
    "$build/loong-data" show "$recipe" --samples 99 --out "$name.html" \
        "data.tokenizer=$golden/$model" "data.image_root=$pictures" \
        "data.train=[$golden/openai.jsonl]" "$@" >show.out 2>&1 ||
        fail "show $name: $(tail -n 3 show.out)"
    grep "^$model openai" "$golden/ids.txt" | cut -d ' ' -f 3- | sort >wanted
    python3 "$source/tests/cli/read_page.py" "$name.html" >"$name.rows" ||
        fail "show $name: the page"
    sort "$name.rows" | diff wanted - >show.out ||
        fail "show $name: $(cut -c1-300 show.out)"
}
if command -v python3 >/dev/null; then
    cat >small.json <<'END'
{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4,
"merge_size": 2, "temporal_patch_size": 2,
"size": {"shortest_edge": 64, "longest_edge": 384}}
END
    show llava llava start.yaml train.epochs=1 ~train.train_iters \
        parallel.tensor_model_parallel_size=2 model.image_projector.ranks=0-1
    show qwen2_vl qwen2_vl "$source/tests/golden/qwen2_vl_train.yaml" \
        model.foundation.vocab_size=264 data.seq_length=256 \
        model.foundation.max_position_embeddings=256 \
        training_phase=sft "data.image_token='<|image_pad|>'" \
        data.image_processor=small.json data.max_patches=2048 \
        train.epochs=1 ~train.train_iters
    grep -q 'openai.jsonl:3<' qwen2_vl.html || fail "a sample has no origin"
    # Moments of a video have texts between them.
    if [ -e "$build/libloong_video.so" ]; then
        . "$source/tests/train/texts_with_videos.sh"
        write_videos "$source" films
        cat >videos.json <<'END'
{"video_processor_type": "Qwen3VLVideoProcessor", "fps": 1.5, "patch_size": 4,
"merge_size": 2, "temporal_patch_size": 2, "min_frames": 2, "max_frames": 8,
"do_sample_frames": true, "size": {"shortest_edge": 128, "longest_edge": 4096}}
END
        films=("$source/tests/golden/qwen3_vl_train.yaml" data.tokenizer=films
            data.{image_processor=small,video_processor=videos}.json
            data.train='[{path: films/texts.jsonl, source: chat}]'
            data.video_token='<video>' training_phase=sft
            model.foundation.{vocab_size=34,max_position_embeddings=192}
            data.{seq_length=192,max_patches=2048})
        "$build/loong-data" show "${films[@]}" --samples 8 --out films.html \
            >show.out 2>&1 || fail "show videos: $(tail -n 3 show.out)"
        # ab<0.2 seconds><|vision_start|><video><|vision_end|><1.5 ... de
        seconds='18 9 7 17 16 8 18 31 3 2 4'
        python3 "$source/tests/cli/read_page.py" films.html >show.out
        grep -qx "5 +6 30 20 32 24 33 $seconds 30 21 32 27 33 $seconds +8 +9" \
            show.out || fail "show videos: $(cat show.out)"
        for text in '>video 2, moment 1: 3 places<' '>video 1, moment 2<' \
            '>video 1, films/clip.mov: 2 x '; do
            grep -q "$text" films.html || fail "show videos: no $text"
        done
        # The same page, of videos that have an encoder of their own.
        v=model.video_encoder
        "$build/loong-data" show "${films[@]}" $v.family=qwen3_vl_vision \
            $v.{hidden_size=8,num_layers=2,num_attention_heads=2,patch_size=4} \
            $v.num_position_embeddings=25 "$v.deepstack_layers=[0,1]" \
            model.video_projector.family=qwen3_vl_merger data.max_images=8 \
            data.{max_videos=8,max_video_patches=2048} --out towers.html \
            >towers.out 2>&1 || fail "show towers: $(tail -n 3 towers.out)"
        [ "$(grep -c 'rows of video_encoder' towers.html)" = 5 ] &&
            sed 's/of video_encoder/of image_encoder/' towers.html |
            cmp - films.html || fail "the page of two encoders is another"
        "$build/loongrun" "${films[@]}" --check >check.out 2>&1
        grep -q ': 3 pictures and 5 videos decoded' check.out ||
            fail "videos are pictures: $(grep decoded check.out)"
    fi
    # Pixels of the first sample; none of it is a tag of somebody's.
    for letter in a '<b>&amp;"'; do
        echo '{"text": "<image>'"${letter//\"/\\\"}"'", "image": "rgb.png"}'
    done >one.jsonl
    "$build/loong-data" show start.yaml "data.tokenizer=$golden/llava" \
        data.train='[{path: one.jsonl, source: image_text}]' \
        "data.image_root=$pictures" "data.image_processor=$pictures/vit.json" \
        model.image_encoder.{image_size=32,patch_size=16} \
        train.train_iters=2 >show.out 2>&1 ||
        fail "show pixels: $(tail -n 3 show.out)"
    python3 "$source/tests/cli/read_page.py" page.html \
        "$pictures/rgb.png.vit.f32" 0.5 0.5 >show.out || fail "pixels"
    grep -q '&lt;</span>' page.html || fail "markup is not escaped"
    # Texts alone, three of which share the one row.
    for letter in a b c; do
        user "\"$letter?\"" | sed 's/<image>//'
    done >texts.jsonl
    "$build/loong-data" show start.yaml ~model.image_encoder \
        ~model.image_projector "data.tokenizer=$golden/llava" \
        data.train='[{path: texts.jsonl}]' data.packing=best_fit \
        ~data.max_images --out texts.html >show.out 2>&1 ||
        fail "show texts: $(tail -n 3 show.out)"
    python3 "$source/tests/cli/read_page.py" texts.html >show.out || fail "texts"
    [ "$(grep -c '"segment"><h3>texts.jsonl:[123],' texts.html)" = 3 ] ||
        fail "samples of a row: $(grep '<h3>' texts.html)"
fi
cp -r model other
sed -i 's/"image_token_index": 258/"image_token_index": 257/' other/config.json
cat >lora.yaml <<'END'
version: 1
model: {from_hf: model}
finetune: {method: lora}
train: {epochs: 2}
export: {hf: adapter}
END
run one 1 lora.yaml log.interval=1
grep -q 'image_encoder: tensor 1 x data 1, .* frozen' one.out ||
    fail "the encoder is not frozen"
mv adapter one.adapter
rm -rf adapter.checkpoints
run again 1 lora.yaml finetune.adapter=one.adapter optimizer.lr=0
cmp one.adapter/adapter_model.safetensors adapter/adapter_model.safetensors ||
    fail "an adapter does not go on as it was"
rm -r adapter
rm -rf adapter.checkpoints
run two 2 lora.yaml log.interval=1
losses() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' \
        "log_$1/metrics.jsonl"
}
[ "$(losses one)" = "$(losses two)" ] && [ "$(losses one | wc -l)" = 2 ] ||
    fail "two ranks: $(losses one; losses two)"
# A run goes on with the rows and the room for pictures that it had, and other
# components than the language model may learn.
status=75 run half 1 lora.yaml log.interval=1 train.exit_interval=1 \
    export.hf=half
run rest 1 lora.yaml log.interval=1 checkpoint.load=auto export.hf=half
[ "$(losses one)" = "$(losses half; losses rest)" ] ||
    fail "resumed: $(losses one; losses half; losses rest)"
for part in encoder projector; do
    run $part 1 lora.yaml model.image_$part.freeze=false \
        export.merge=true export.hf=merged --check
    grep "image_$part: .* frozen" $part.out && fail "the $part is frozen"
done
# Room for pictures follows from the samples, also where nothing else does.
run room 1 lora.yaml data.seq_length=128 train.global_batch_size=2 --check
# rows WANTED KEY=VALUE...: so long are rows that follow from the samples.
rows() {
    local wanted=$1
    shift
    run rows 1 start.yaml '~data.seq_length' data.tokenizer="$golden/llava" \
        model.foundation.max_position_embeddings=8192 export=null --check "$@"
    grep -q "(1 sample of $wanted)" rows.out ||
        fail "rows of $wanted: $(grep 'tokens per step' rows.out)"
}
rows 128
# Two pictures of 256 patches, of which four may be a row; of their own sizes.
rows 256 model.image_encoder.image_size=224 model.image_projector.merge_size=2
rows 640 model.image_encoder.image_size=224
rows 128 model.image_encoder.family=qwen2_vl_vision \
    model.image_encoder.feature_layer=-1 model.image_encoder.image_size=null \
    model.image_projector.family=patch_merger
# cannot TEXT KEY=VALUE...
cannot() {
    local text=$1
    shift
    status=2 run cannot 1 lora.yaml --check "$@"
    grep -qF "$text" cannot.out || fail "$*: $(tail -n 3 cannot.out)"
}
cannot 'here it has 5: finetune.rank' finetune.adapter=one.adapter \
    finetune.rank=5
cannot 'model.image_encoder learns is no part of an adapter' \
    model.image_encoder.freeze=false
cannot 'pictures of family clip_vision_model are all of one size' \
    data.max_patches=64
cannot 'data.max_tiles: found 5, the image processor makes up to 3' \
    data.image_processor="$pictures/tiles.json" data.max_tiles=5
echo '{"image_processor_type": "CLIPImageProcessor", "do_center_crop": false,
    "size": {"shortest_edge": 28}}' >uncut.json
cannot 'keeps proportions (size has shortest_edge 28 and do_center_crop is' \
    data.image_processor=uncut.json
cannot 'image_token_index is 257, the token of data.image_token has id 258' \
    model.from_hf=other 'data.image_token=<image>'
cannot 'no whole blocks of 64' finetune.method=qlora
# A check decodes what a step would stop at, and tells of all, also where a run
# has begun already.
head -c 3000 "$pictures/rgb.png" >cut.png
head -c 900 "$pictures/j420.jpg" >cut.jpg
for name in cut.png "$pictures/rgb.png" cut.jpg; do
    user '"<image>"' ", \"image\": \"$PWD/${name#"$PWD"/}\""
done | sed "s#$PWD/$pictures#$pictures#" >cut.jsonl
status=1 run cut 1 lora.yaml --check "data.validation=[cut.jsonl]"
for text in 'of 3 pictures: 2 problems' 'cut.png: ' \
    'wanted by cut.jsonl:1; data.chat.decode: true refuses' \
    'cut.jpg: ' 'wanted by cut.jsonl:3; data.chat.decode: true refuses' \
    'warning: as it is, a run is refused: checkpoint.save: .* begins anew$'; do
    grep -q "$text" cut.out || fail "pictures cut off: no '$text' in: $(cat cut.out)"
done
run whole 1 lora.yaml --dry-run "data.validation=[cut.jsonl]"
grep -q '"model.language_model.layers.0.self_attn.q_proj"' \
    one.adapter/adapter_config.json || fail "the adapter is of other modules"
# Its names are those of modules, which the files of this model call otherwise.
"$build/loong-ckpt" verify one.adapter --base model >out 2>&1 ||
    fail "adapters beside a whole model: $(cat out)"
# ckpt ARGUMENT ...
ckpt() {
    "$build/loong-ckpt" "$@" >out 2>&1 || fail "loong-ckpt $*: $(cat out)"
}
# there_and_back NAME: an adapter goes through a checkpoint, and into the model
# as its training merges it.
there_and_back() {
    ckpt import "$1.adapter" "$1.native" --base model
    ckpt export "$1.native" "$1.back"
    cmp "$1.adapter/adapter_model.safetensors" \
        "$1.back/adapter_model.safetensors" || fail "$1: there and back"
    ckpt merge "$1.adapter" model "$1.merged"
    ckpt export --merge "$1.native" "$1.merged2"
    ckpt diff "$1.merged" "$1.merged2"
}
there_and_back one
# As transformers called modules before 4.52.
cp -r one.adapter old.adapter
sed -i 's/base_model\.model\.model\.language_model\./base_model.model.language_model.model./g' \
    old.adapter/adapter_model.safetensors
ckpt verify old.adapter --base model
ckpt merge old.adapter model old.merged
ckpt diff one.merged old.merged
run rest2 1 lora.yaml checkpoint.load=one.native checkpoint.no_load_optim=true \
    checkpoint.save=rest2 optimizer.lr=0 export.hf=rest2.adapter train.epochs=1
cmp one.adapter/adapter_model.safetensors \
    rest2.adapter/adapter_model.safetensors || fail "an import does not go on"
# What the projector learns stands beside the adapter.
run both 1 lora.yaml model.image_projector.freeze=false export.hf=both.adapter
grep -q '"model.multi_modal_projector.linear_1"' \
    both.adapter/adapter_config.json || fail "the projector is not saved"
there_and_back both
ckpt export --merge both.adapter.checkpoints both.trained
ckpt diff both.merged both.trained
"$build/loong-ckpt" diff one.merged both.merged >out
grep -q 'multi_modal_projector' out || fail "the projector learned nothing"
run go 1 lora.yaml model.image_projector.freeze=false optimizer.lr=0 \
    finetune.adapter=both.adapter export.hf=go.adapter
cmp both.adapter/adapter_model.safetensors go.adapter/adapter_model.safetensors ||
    fail "a projector does not go on as it was"
status=2 run cannot 1 lora.yaml finetune.adapter=both.adapter export.hf=no
grep -q 'model.COMPONENT.freeze: false' cannot.out ||
    fail "a projector is left out: $(tail -n 3 cannot.out)"
"$build/loong-ckpt" export --quiet --merge adapter.checkpoints merged ||
    fail "the adapter is not merged"
"$build/loong-ckpt" diff model merged >out
grep -q 'language_model.model.layers.1.mlp.down_proj.weight: ' out ||
    fail "nothing was learned: $(cat out)"
grep -E '^(vision|multi|language_model.*(norm|embed))' out &&
    fail "what stays was changed"
# configs/recipes/vlm_small.yaml, with the pictures that are here.
recipe() {
    "$build/loongrun" "$source/configs/recipes/vlm_small.yaml" device=cpu \
        data.tokenizer="$golden/llava" data.image_root="$pictures" \
        "data.train=[$golden/openai.jsonl]" data.seq_length=256 \
        "data.validation=[{name: held out, path: $golden/openai.jsonl}]" \
        train.{micro,global}_batch_size=2 data.max_images=4 log.interval=1 \
        "$@" >recipe.out 2>&1 </dev/null || fail "$*: $(tail -n 5 recipe.out)"
}
recipe --check
grep -q 'image_encoder: parameters: 4945152 ' recipe.out ||
    fail "another encoder: $(grep parameters recipe.out)"
recipe train.epochs=1
grep -q 'finished at step 2 of 2' recipe.out || fail "$(tail -n 5 recipe.out)"
grep -q '"vision_feature_layer": -1' runs/vlm_small/model/config.json ||
    fail "the recipe's model was not exported"
echo "$failures failures"
[ $failures = 0 ]
